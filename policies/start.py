"""Pods that start and stay: mounts, compile caches, probes, and variables that others set."""

import re
from collections.abc import Iterator

from policies.documents import embedded
from policies.plain import mapping
from policies.pods import Pod, hosts, pods, ray_items, ray_pods, tpu_pods
from policies.rule import ADVISORY, MANDATORY, Context, rule
from policies.view import Fault, Item, Node

FUSE = "gcsfuse.csi.storage.gke.io"
_CACHES = ("VLLM_XLA_CACHE_PATH", "JAX_COMPILATION_CACHE_DIR")
_OF_A_HOST = re.compile(r"TPU_(WORKER_ID|WORKER_HOSTNAMES|NAME|TOPOLOGY)")
_OF_SEVERAL_SLICES = re.compile(r"MEGASCALE_\w+")
_PROBE_DEFAULTS = {"initialDelaySeconds": 0, "periodSeconds": 10, "failureThreshold": 3}
_TIMEOUT = "ray.io/initializing-timeout"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|m|s)")
_UNIT_S = {"h": 3600, "m": 60, "s": 1}


def buckets(pod: Pod) -> dict[str, Node]:
    """Volumes that mount a bucket, by name."""
    return {
        volume["name"].text or "": volume
        for volume in pod.spec["volumes"]
        if volume["csi"]["driver"].text == FUSE
    }


@rule(
    "start-bucket-mount",
    "A pod that mounts a bucket has the annotation and an account of its own.",
    why="Without the annotation nothing mounts it and the pod never starts; the default account "
    "has no right to it.",
    levels=MANDATORY,
    over=pods,
    pains=("P18",),
)
def _bucket_mount(pod: Pod, _: Context) -> Iterator[Fault]:
    if not buckets(pod):
        return
    at = pod.template["metadata"]["annotations"]["gke-gcsfuse/volumes"]
    if at.text != "true":
        yield at.fault("mounts a bucket that nothing mounts without it", 'annotate "true"')
    account = pod.spec["serviceAccountName"]
    if account.text in (None, "", "default"):
        fix = "name one with roles/storage.objectUser on the bucket"
        yield account.fault("mounts a bucket as the default account", fix)


@rule(
    "start-mount-everywhere",
    "A bucket that workers of a Ray cluster mount is mounted on its head too.",
    why="Code of the driver and of Serve's controller opens the same path on the head.",
    levels=ADVISORY,
    over=ray_items,
    pains=("P18", "P32"),
)
def _mount_everywhere(item: Item, _: Context) -> Iterator[Fault]:
    (head, *workers) = ray_pods(item)
    there = {_bucket(volume) for volume in buckets(head).values()}
    for worker in workers:
        for volume in buckets(worker).values():
            if (name := _bucket(volume)) not in there:
                what = f"group {worker.name} mounts bucket {name}, and the head does not"
                yield volume.fault(what, "add volume and volumeMount to headGroupSpec.template too")


def _bucket(volume: Node) -> str | None:
    return volume["csi"]["volumeAttributes"]["bucketName"].text


@rule(
    "start-compile-cache",
    "vLLM's compile cache is on the node, where each rank keeps its own.",
    why="A bucket's address gives no hits, and hosts that share a mount write the same files.",
    levels=ADVISORY,
    over=tpu_pods,
    pains=("P23",),
)
def _compile_cache(pod: Pod, _: Context) -> Iterator[Fault]:
    mounted = buckets(pod)
    for container in pod.spec["containers"]:
        shared = [
            m["mountPath"].text for m in container["volumeMounts"] if m["name"].text in mounted
        ]
        for variable in container["env"]:
            value = variable["value"]
            if variable["name"].text not in _CACHES or not value:
                continue
            path = value.text or ""
            if path.startswith("gs://") and variable["name"].text == _CACHES[0]:
                yield value.fault("vLLM finds nothing in a bucket", "use a folder of the node")
            on_mount = any(path.startswith(folder) for folder in shared if folder)
            if on_mount and (hosts(pod) or 1) > 1:
                what = f"{hosts(pod)} hosts write one cache"
                yield value.fault(what, "use a folder of the node, such as an emptyDir")


@rule(
    "start-probe",
    "No liveness probe ends a server that still compiles.",
    why="A first start compiles for up to half an hour; a probe that ends it begins it anew.",
    levels=MANDATORY,
    over=tpu_pods,
    pains=("P23",),
    limits=("compile_seconds",),
)
def _probe(pod: Pod, context: Context) -> Iterator[Fault]:
    budget = context.settings.limits.compile_seconds
    for container in pod.spec["containers"]:
        probe = container["livenessProbe"]
        if not probe:
            continue
        startup = container["startupProbe"]
        patience = _patience(probe) + (_patience(startup) if startup else 0)
        if patience < budget:
            what = f"ends the server after {patience} s, and compiling may take {budget}"
            wait = "periodSeconds x failureThreshold"
            fix = f"add a startupProbe with {wait} of {budget} or more, or leave this one out"
            yield probe.fault(what, fix)


def _patience(probe: Node) -> int:
    delay, period, failures = (
        value if (value := probe[key].number) is not None else default
        for key, default in _PROBE_DEFAULTS.items()
    )
    return delay + period * failures


@rule(
    "start-service-timeout",
    "A RayService on TPU says how long it may take to start, and that is enough to compile.",
    why="When the operator's own limit expires, the service is lost for good.",
    levels=ADVISORY,
    over=lambda item: (item,) if item.kind == "RayService" and tpu_pods(item) else (),
    pains=("P23",),
    limits=("compile_seconds",),
)
def _service_timeout(item: Item, context: Context) -> Iterator[Fault]:
    at = item.root["metadata"]["annotations"][_TIMEOUT]
    budget = context.settings.limits.compile_seconds
    text = at.text
    fix = f"annotate {_TIMEOUT}: {2 * budget}s or more"
    if text is None:
        yield at.fault("how long it may take to start is not said", fix)
        return
    seconds = sum(float(size) * _UNIT_S[unit] for size, unit in _DURATION.findall(text))
    if seconds < budget:
        yield at.fault(f"{text} is less than compiling may take, {budget} s", fix)


@rule(
    "start-slice-variables",
    "Variables of the slice are left to Google's webhook and to Ray.",
    why="Set by hand they outlive a slice that is replaced, and its hosts wait for one that never "
    "comes.",
    levels=MANDATORY,
    over=lambda item: [
        *(pod for pod in ray_pods(item) if pod.role == "worker"),
        *((item.root["spec"]["runtimeEnvYAML"],) if item.kind == "RayJob" else ()),
    ],
    pains=("P29",),
)
def _slice_variables(subject: Pod | Node, _: Context) -> Iterator[Fault]:
    """Of several slices Ray Train sets them, and the webhook only if it is told their number."""
    by_train = subject.item.kind == "RayJob"
    for name, at in _variables(subject):
        if _OF_A_HOST.fullmatch(name) or (by_train and _OF_SEVERAL_SLICES.fullmatch(name)):
            yield at.fault(f"{name} is set by hand", "leave it out")


def _variables(subject: Pod | Node) -> Iterator[tuple[str, Node]]:
    if isinstance(subject, Node):
        found = mapping(mapping(embedded(subject.text or "")).get("env_vars"))
        yield from ((str(name), subject) for name in found)
        return
    for container in subject.containers():
        yield from ((variable["name"].text or "", variable) for variable in container["env"])
