"""Slices of which a host is replaced: versions of Ray and its operator that do so as a whole."""

import re
from collections.abc import Iterable, Iterator

from infra.config.kubernetes_rules import WHOLE_SLICES
from infra.errors import quote
from infra.gke.names import KUBERAY
from policies.pods import RAY, Pod, hosts, pods, ray_cluster, slices, tpu_pods
from policies.rule import ADVISORY, Context, rule
from policies.view import Fault, Item, Node, UnknownError

SLICES_SET_ANEW = (2, 56)
"""The first Ray whose JaxTrainer writes over MEGASCALE_* (ray/train/v2/jax/config.py of 2.55.1, of
2.56.0 and of 2.60.0)."""
_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})")
_OPERATOR_IMAGE = re.compile(r"/(?:kuberay-)?operator:v?(\d{1,6})\.(\d{1,6})")


def several_slices(item: Item) -> Iterable[Pod]:
    """Groups of which a run may span several slices of several hosts."""
    if item.kind not in ("RayJob", "RayCluster"):
        return []
    return [pod for pod in tpu_pods(item) if slices(pod) > 1 and (hosts(pod) or 1) > 1]


@rule(
    "runs-ray-version",
    "A run over several slices is of a Ray that tells them anew how many they are.",
    why="A pod that replaces a lost one may be told of slices that are ending. Ray before 2.56 "
    "keeps what it is told, and the next start waits for ever. What Ray an image holds is not "
    "looked into: rayVersion is taken for it.",
    levels=ADVISORY,
    over=several_slices,
    pains=("P29",),
)
def _ray_version(pod: Pod, _: Context) -> Iterator[Fault]:
    at = ray_cluster(pod.item)["rayVersion"]
    found = _release(at)
    if found < SLICES_SET_ANEW:
        version, wanted = ".".join(map(str, found)), ".".join(map(str, SLICES_SET_ANEW))
        what = f"Ray {version} keeps MEGASCALE_* of slices that were replaced"
        yield at.fault(what, f"use Ray {wanted} or newer in rayVersion and in the images")


def _release(at: Node) -> tuple[int, ...]:
    match = _VERSION.match(at.text or "")
    if match is None:
        what = f"which release of Ray {quote(at.text)} is" if at else "the version of its Ray"
        raise UnknownError(at.path, what)
    return tuple(int(part) for part in match.groups())


def slices_of_hosts(item: Item) -> Iterable[Pod]:
    if item.kind not in RAY:
        return []
    return [pod for pod in tpu_pods(item) if (hosts(pod) or 1) > 1]


@rule(
    "runs-operator-version",
    "A slice of several hosts is under an operator that replaces it as a whole.",
    why="KubeRay before 1.6 replaces a lost host alone: it joins hosts whose runtime is dead, and "
    f"the run hangs. Its version is the annotation {KUBERAY} of the object or of its namespace, "
    "or the image of an operator that is here too.",
    levels=ADVISORY,
    over=slices_of_hosts,
    pains=("P16",),
)
def _operator_version(pod: Pod, context: Context) -> Iterator[Fault]:
    found = _operator(pod.item, context)
    if found is None:
        raise UnknownError(("metadata", "annotations", KUBERAY), "the version of its operator")
    if found < WHOLE_SLICES and pod.hosts is not None:
        version, wanted = (".".join(map(str, one)) for one in (found, WHOLE_SLICES))
        what = f"KubeRay {version} replaces a lost host without the {(hosts(pod) or 1) - 1} others"
        yield pod.hosts.fault(what, f"use KubeRay {wanted} or newer, and write it as {KUBERAY}")


def _operator(item: Item, context: Context) -> tuple[int, ...] | None:
    namespaces = [one for one in context.view.of("Namespace") if one.name == item.namespace]
    for said in (item, *namespaces):
        if at := said.root["metadata"]["annotations"][KUBERAY]:
            match = _VERSION.match(at.text or "")
            return tuple(int(part) for part in match.groups()) if match else None
    for one in context.view.of("Deployment"):
        for container in (container for pod in pods(one) for container in pod.containers()):
            if match := _OPERATOR_IMAGE.search(container["image"].text or ""):
                return tuple(int(part) for part in match.groups())
    return None
