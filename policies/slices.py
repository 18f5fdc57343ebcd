"""Slices of pods: what they ask for exists, and all that speaks of a slice says the same."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from infra.errors import quote
from infra.names import is_name
from infra.tpu import topology as topologies
from infra.tpu.catalog import (
    ACCELERATOR_LABEL,
    CHIP_RESOURCE,
    GENERATIONS,
    MACHINES,
    TOPOLOGY_LABEL,
    Machine,
)
from policies.engines import applications
from policies.plain import mapping
from policies.pods import Pod, devices_per_chip, hosts, machines, pods, shape, slices, tpu_pods
from policies.rule import MANDATORY, Context, rule
from policies.view import Fault, Item, Node, UnknownError

_GROUP_LIMIT, _LABEL_LIMIT = 41, 63
_NAMES = {"RayCluster": (53, 41), "RayJob": (47, 35), "RayService": (47, 35)}
"""Longest names: of KubeRay's own validation, and with hosts that look for each other (names)."""
_SLICE_TOPOLOGY = "cloud.google.com/gke-tpu-slice-topology"
"""By which Kueue makes a slice out of several, or of a part."""
_WORKERS = re.compile(r"--num[-_]workers[= ]+(\d{1,6})")


@rule(
    "slices-shape",
    "Pods ask for a slice that exists: accelerator, topology and chips of a host.",
    why="Of a shape that no machine forms the pods wait for ever; Google's webhook refuses a Ray "
    "pod whose topology is not in its nodeSelector.",
    levels=MANDATORY,
    over=tpu_pods,
    pains=("P01", "P02", "P04"),
)
def _shape(pod: Pod, _: Context) -> Iterator[Fault]:
    accelerator, topology = pod.selector[ACCELERATOR_LABEL], pod.selector[TOPOLOGY_LABEL]
    yield from _chips_limited(pod)
    if not pod.chips and pod.role == "other":
        return  # what watches over TPU pods, on their nodes
    if not pod.chips:
        counts = sorted({m.chips for m in machines(accelerator.text or "", topology.text or "")})
        wanted = " or ".join(map(str, counts)) or "the chips of one host"
        fix = f"write {CHIP_RESOURCE}: {wanted} in its resources.limits"
        yield pod.spec["containers"].fault("selects TPU nodes and asks for no chips", fix)
        return
    annotations = pod.template["metadata"]["annotations"]
    in_others = annotations[_SLICE_TOPOLOGY] or pod.compute_class is not None
    by_class = pod.role == "other" and in_others
    for label, name in ((accelerator, ACCELERATOR_LABEL), (topology, TOPOLOGY_LABEL)):
        if not label and not by_class:
            fix = f"add {name} to nodeSelector"
            yield pod.selector.fault(f"asks for chips and does not select {name}", fix)
    if not accelerator or not topology:
        return
    yield from _exists(accelerator, topology, pod.chips)


def _chips_limited(pod: Pod) -> Iterator[Fault]:
    """Chips are no resource to overcommit: Kubernetes refuses a request that is not the limit."""
    for container in pod.spec["containers"]:
        limit = container["resources"]["limits"][CHIP_RESOURCE]
        request = container["resources"]["requests"][CHIP_RESOURCE]
        if request and request.number != limit.number:
            what = f"{request.number} is not the limit, {limit.number or 'which is missing'}"
            yield request.fault(what, f"write the same {CHIP_RESOURCE} in requests and limits")


def _exists(accelerator: Node, topology: Node, chips: int) -> Iterator[Fault]:
    kind, form = accelerator.text or "", topology.text or ""
    known = sorted(generation.gke_accelerator for generation in GENERATIONS.values())
    if kind not in known:
        yield accelerator.fault(f"{quote(kind)} is no TPU here", f"use one of {', '.join(known)}")
        return
    if machines(kind, form, chips):
        return
    fitting = machines(kind, form)
    if not fitting:
        legal = {t for m in _all_machines(kind) for t in topologies.topologies(m)}
        nearest = sorted(legal, key=topologies.chips)[:10]
        yield topology.fault(
            f"{quote(form)} is no topology of {kind}", f"use one such as {', '.join(nearest)}"
        )
        return
    counts = " or ".join(f"{m.chips} ({m.name})" for m in fitting)
    yield topology.fault(
        f"{form} of {kind} is not made of hosts of {chips} chips",
        f"limit {CHIP_RESOURCE} to {counts}, or change the topology",
    )


def _all_machines(accelerator: str) -> list[Machine]:
    return [
        m for m in MACHINES.values() if GENERATIONS[m.generation].gke_accelerator == accelerator
    ]


@rule(
    "slices-hosts",
    "A group has as many hosts as its slice: topology divided by the chips of a host.",
    why="With fewer the slice never forms, and with more the rest waits. Google's webhook refuses "
    "such a Ray cluster when it is made, but not when it is changed.",
    levels=MANDATORY,
    over=tpu_pods,
    pains=("P01", "P02", "P04"),
)
def _hosts(pod: Pod, _: Context) -> Iterator[Fault]:
    right, said = hosts(pod), pod.hosts
    if right is None or said is None:
        return
    found = said.number if said else 1
    if found != right:
        _accelerator, topology, chips = shape(pod) or ("", "", 0)
        what = f"{found} where {topology} with {chips} chips a host takes {right}"
        yield said.fault(what, f"write {right}")


@rule(
    "slices-names",
    "Names leave room for what is made of them.",
    why="KubeRay appends to names, and the TPU webhook cuts what is made of a cluster's name after "
    "41 characters: hosts of a longer one look for each other at a service that does not exist.",
    levels=MANDATORY,
    over=lambda item: (item,) if item.kind in _NAMES else (),
    pains=("P14",),
)
def _names(item: Item, _: Context) -> Iterator[Fault]:
    workers = tuple(pods(item))
    several = any((hosts(pod) or 1) > 1 for pod in workers)
    limit = _NAMES[item.kind][several]
    name = item.root["metadata"]["name"]
    if "${" in (name.text or ""):
        raise UnknownError(name.path)  # it is filled in before it is applied
    if (text := name.text) is not None and (len(text) > limit or not is_name(text)):
        what = f"{quote(text)} has {len(text)} characters, or others than a-z, 0-9 and '-'"
        yield name.fault(what, f"use at most {limit}, starting with a letter")
    for pod in workers:
        if pod.group is None:
            continue
        group = pod.group["groupName"]
        text = group.text or ""
        longest = f"{text}-{max(slices(pod) - 1, 0)}-{max((hosts(pod) or 1) - 1, 0)}"
        if len(longest) > _LABEL_LIMIT or not is_name(text):
            what = f"{quote(text)} cannot begin host names such as {quote(longest)}"
            yield group.fault(what, f"use a-z, 0-9 and '-', at most {_GROUP_LIMIT}")


@dataclass(frozen=True)
class Contract:
    """What a workload is told about its slice, as infra writes it."""

    at: Node
    facts: dict[str, Any]


def contracts(item: Item) -> Iterable[tuple[Contract, Item]]:
    return [(contract, item) for contract in _contracts(item)]


def _contracts(item: Item) -> Iterator[Contract]:
    if item.kind == "RayJob":
        at = item.root["spec"]["entrypoint"]
        text = argument(at, "--slice")
        if text is not None and (facts := mapping(_json(text))):
            yield Contract(at, facts)
    if item.kind == "RayService":
        at = item.root["spec"]["serveConfigV2"]
        for args in applications(at):
            if facts := mapping(args.get("slice")):
                yield Contract(at, facts)


def argument(at: Node, flag: str) -> str | None:
    """The value that a command line gives for a flag."""
    words = _words(at.text or "")
    for index, word in enumerate(words):
        if word == flag and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


@lru_cache(256)
def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # quotes that do not close are the shell's matter
        return []


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


@rule(
    "slices-workload",
    "A workload is told of the slice that its pods get.",
    why="A trainer with another number of workers, or an engine with another number of chips, "
    "waits for hosts that do not exist.",
    levels=MANDATORY,
    over=contracts,
    pains=("P02", "P30"),
)
def _workload(subject: tuple[Contract, Item], _: Context) -> Iterator[Fault]:
    contract, item = subject
    told = contract.facts
    named = [pod for pod in tpu_pods(item) if pod.name == told.get("name")]
    for pod in named or [*tpu_pods(item)][:1]:
        found = shape(pod)
        if found is None:
            return
        accelerator, topology, chips = found
        right = {
            "topology": topology,
            "chips_per_host": chips,
            "devices_per_chip": devices_per_chip(accelerator),
            "hosts": hosts(pod),
            "slices": slices(pod),
        }
        wrong = {key: value for key, value in right.items() if told.get(key) != value}
        for key, value in wrong.items():
            what = f"tells the workload {key} {quote(told.get(key))}, but its pods get {value}"
            yield contract.at.fault(what, f"write {key} {value}, or change the worker group")


@rule(
    "slices-workers",
    "A run has as many workers as its slices have hosts.",
    why="Workers that do not fill whole slices get wrong slice ids, or wait for ever.",
    levels=MANDATORY,
    over=lambda item: (item,) if item.kind == "RayJob" and tpu_pods(item) else (),
    pains=("P02", "P30"),
)
def _workers(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["spec"]["entrypoint"]
    found = _WORKERS.search(at.text or "")
    sizes = [right for pod in tpu_pods(item) if (right := hosts(pod))]
    if found is None or not sizes:
        return
    workers = int(found[1])
    if workers == 0 or all(workers % size for size in sizes):
        near = max(workers // sizes[0], 1) * sizes[0]
        what = f"{workers} workers do not fill slices of {sizes[0]} hosts"
        yield at.fault(what, f"write --num_workers {near} or {near + sizes[0]}")
