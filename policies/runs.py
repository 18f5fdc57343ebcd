"""Training runs that lose a host: they go on, from a place that outlives it, having lost little."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from policies.capacity import tpu_jobs
from policies.plain import mapping
from policies.pods import Pod, hosts, preemptible, ray_pods, tpu_pods
from policies.rule import MANDATORY, Context, rule
from policies.slices import argument
from policies.view import Fault, Item, Node

STEP_SECONDS = "raytpu/step-seconds"
CHECKPOINT_STEPS = "raytpu/checkpoint-steps"
MAX_FAILURES = "raytpu/max-failures"
"""Annotations by which a job of other code says what its settings are."""
_SHARED = re.compile(r"\b(gs|s3|abfss|hdfs)://")
_OUTPUT = re.compile(r"--(?:output|storage|checkpoint)(?:[-_](?:dir|path))?[= ]+(/[^\s'\"]*)")
_OURS = re.compile(r"\bworkloads\.(\w+)\.main\b")
_LOSES_LITTLE = {"infer", "check"}
"""What infers keeps each part that is finished, and computes it never again."""


def _on_borrowed_nodes(item: Item, context: Context) -> bool:
    classes = context.view.of("ComputeClass")
    return any(preemptible(pod, classes) for pod in tpu_pods(item))


def _settings(at: Node) -> dict[str, Any]:
    """Those that this project's trainer is given."""
    text = argument(at, "--settings")
    try:
        return mapping(json.loads(text or "{}"))
    except ValueError:
        return {}


def _annotation(item: Item, name: str) -> Node:
    return item.root["metadata"]["annotations"][name]


def _said(item: Item, key: str, annotation: str) -> int | None:
    value = _settings(item.root["spec"]["entrypoint"]).get(key)
    if isinstance(value, int):
        return value
    return _annotation(item, annotation).number


@rule(
    "runs-go-on",
    "A run on spot or flex-start nodes goes on when a host is taken.",
    why="Such hosts are taken back with half a minute's notice, as a matter of course.",
    levels=MANDATORY,
    over=tpu_jobs,
    pains=("P31",),
)
def _go_on(item: Item, context: Context) -> Iterator[Fault]:
    if not _on_borrowed_nodes(item, context):
        return
    retries = item.root["spec"]["backoffLimit"]
    if not (_said(item, "max_failures", MAX_FAILURES) or retries.number):
        fix = f"set the trainer's max_failures (annotation {MAX_FAILURES}), or backoffLimit"
        yield retries.fault("it ends with the first host that is taken", fix)


@rule(
    "runs-saved",
    "A run on spot or flex-start nodes, or of several hosts, saves where all hosts can read.",
    why="What is on a host is lost with it, and hosts that save to folders of their own hang or "
    "leave parts that fit to nothing.",
    levels=MANDATORY,
    over=tpu_jobs,
    pains=("P31", "P32"),
)
def _saved(item: Item, context: Context) -> Iterator[Fault]:
    at = item.root["spec"]["entrypoint"]
    text = at.text or ""
    several = any((hosts(pod) or 1) > 1 for pod in tpu_pods(item))
    borrowed = _on_borrowed_nodes(item, context)
    if not several and not borrowed:
        return
    folder = _OUTPUT.search(text)
    mounted = {mount for pod in tpu_pods(item) for mount in _shared_mounts(pod)}
    if folder is not None:
        if not any(_within(folder[1], mount) for mount in mounted):
            what = f"it saves to {folder[1]}, a folder of each host"
            yield at.fault(what, "write a bucket, such as --output gs://BUCKET/RUN")
        return
    places = [text, item.root["spec"]["runtimeEnvYAML"].text or "", *_variables(item)]
    if borrowed and not mounted and not any(_SHARED.search(place) for place in places):
        fix = "write a bucket, such as --output gs://BUCKET/RUN"
        yield at.fault("where it saves is on no shared storage", fix)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _shared_mounts(pod: Pod) -> Iterator[str]:
    shared = {
        volume["name"].text
        for volume in pod.spec["volumes"]
        if volume["csi"] or volume["persistentVolumeClaim"] or volume["nfs"]
    }
    for container in pod.spec["containers"]:
        for mount in container["volumeMounts"]:
            if mount["name"].text in shared and (path := mount["mountPath"].text):
                yield path


def _variables(item: Item) -> Iterable[str]:
    for pod in ray_pods(item):
        for container in pod.spec["containers"]:
            for variable in container["env"]:
                yield variable["value"].text or ""


@rule(
    "runs-lose-little",
    "A run on spot or flex-start nodes loses no more than a bound when a host is taken.",
    why="All since the last checkpoint is computed, and paid for, again.",
    levels=MANDATORY,
    over=tpu_jobs,
    pains=("P31",),
    limits=("lost_steps", "lost_seconds"),
)
def _lose_little(item: Item, context: Context) -> Iterator[Fault]:
    if not _on_borrowed_nodes(item, context):
        return
    entrypoint = item.root["spec"]["entrypoint"]
    modules = set(_OURS.findall(entrypoint.text or ""))
    if modules and modules <= _LOSES_LITTLE:
        return
    ours = "train" in modules
    at = entrypoint if ours else _annotation(item, CHECKPOINT_STEPS)
    key = "checkpoint_every" if ours else CHECKPOINT_STEPS
    steps = _said(item, "checkpoint_every", CHECKPOINT_STEPS)
    limits = context.settings.limits
    if steps is None:
        by_hand = f"annotate {CHECKPOINT_STEPS}, and {STEP_SECONDS} if you know it"
        fix = "write checkpoint_every" if modules else by_hand
        yield at.fault("how often it saves is not said", fix)
        return
    step_s = _seconds(_annotation(item, STEP_SECONDS))
    if step_s is None and steps > limits.lost_steps:
        what = f"it saves every {steps} steps, over the limit of {limits.lost_steps}"
        fix = f"write {key} {limits.lost_steps} or less, or annotate {STEP_SECONDS}"
        yield at.fault(what, fix)
    if step_s is not None and steps * step_s > limits.lost_seconds:
        lost = f"{steps} steps of {step_s:g} s are {steps * step_s:g} s"
        what = f"{lost}, over the limit of {limits.lost_seconds}"
        most = max(int(limits.lost_seconds / step_s), 1)
        yield at.fault(what, f"write {key} {most} or less")


def _seconds(at: Node) -> float | None:
    text = at.text
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 < found < float("inf") else None
