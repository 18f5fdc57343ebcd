"""The pods that an object makes, and the TPU slices that they ask for, whatever kind it is of."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from infra.gke.compute_class import CLASS_LABEL
from infra.tpu import topology as topologies
from infra.tpu.catalog import (
    ACCELERATOR_LABEL,
    CHIP_RESOURCE,
    GENERATIONS,
    MACHINES,
    TOPOLOGY_LABEL,
    Machine,
)
from policies.view import Item, Node

RAY = {"RayCluster": (), "RayJob": ("rayClusterSpec",), "RayService": ("rayClusterConfig",)}
"""Where each kind keeps the specification of its Ray cluster, below spec."""
SPOT_LABELS = ("cloud.google.com/gke-spot", "cloud.google.com/gke-flex-start")
PROVISIONING_LABEL = "cloud.google.com/gke-provisioning"


@dataclass(frozen=True)
class Pod:
    """A template of pods."""

    item: Item
    template: Node
    role: Literal["head", "worker", "other"] = "other"
    hosts: Node | None = None
    """What says how many hosts form a slice: numOfHosts, or a job's parallelism."""
    group: Node | None = None
    """Of a Ray cluster's workers."""

    @property
    def spec(self) -> Node:
        return self.template["spec"]

    @property
    def selector(self) -> Node:
        return self.spec["nodeSelector"]

    @property
    def compute_class(self) -> str | None:
        return self.selector[CLASS_LABEL].text

    def containers(self) -> Iterator[Node]:
        yield from self.spec["initContainers"]
        yield from self.spec["containers"]

    @cached_property
    def chips(self) -> int:
        """Of one pod, as Google's webhook counts them."""
        resources = [container["resources"] for container in self.spec["containers"]]
        asked = (r["limits"][CHIP_RESOURCE] or r["requests"][CHIP_RESOURCE] for r in resources)
        return sum(node.number or 0 for node in asked)

    @property
    def name(self) -> str:
        return (self.group["groupName"].text if self.group else None) or self.item.name


@lru_cache(64)
def pods(item: Item) -> Sequence[Pod]:
    """Kept for a while: all rules judge one item after another."""
    return (*_pods(item),)


def _pods(item: Item) -> Iterator[Pod]:
    spec = item.root["spec"]
    match item.kind:
        case "RayCluster" | "RayJob" | "RayService":
            yield from _of_ray(item, ray_cluster(item))
        case "Pod":
            yield Pod(item, item.root)
        case "Job":
            yield _of_job(item, spec)
        case "CronJob":
            yield _of_job(item, spec["jobTemplate"]["spec"])
        case "JobSet":
            yield from (_of_job(item, job["template"]["spec"]) for job in spec["replicatedJobs"])
        case "LeaderWorkerSet":
            template = spec["leaderWorkerTemplate"]
            parts = (template["leaderTemplate"], template["workerTemplate"])
            own = [Pod(item, part) for part in parts if part]
            # A leader without chips is counted too, and is no host of the slice.
            size = template["size"] if all(pod.chips for pod in own) else None
            yield from (replace(pod, hosts=size) for pod in own)
        case "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet":
            yield Pod(item, spec["template"])
        case _:
            return


def _of_job(item: Item, job: Node) -> Pod:
    """A job runs a pod on each host of its slice: as many at once as it says, or 1."""
    return Pod(item, job["template"], hosts=job["parallelism"])


@lru_cache(64)
def tpu_pods(item: Item) -> Sequence[Pod]:
    """Those that ask for chips, or for nodes that have some."""
    return tuple(pod for pod in pods(item) if pod.chips or pod.selector[ACCELERATOR_LABEL])


def ray_pods(item: Item) -> Sequence[Pod]:
    return pods(item) if item.kind in RAY else ()


def ray_cluster(item: Item) -> Node:
    """The specification of an item's Ray cluster."""
    spec = item.root["spec"]
    for key in RAY[item.kind]:
        spec = spec[key]
    return spec


def ray_items(item: Item) -> Iterable[Item]:
    return (item,) if item.kind in RAY else ()


def tpu_rays(item: Item) -> Iterable[Item]:
    """Ray's kinds whose clusters take TPUs."""
    return (item,) if item.kind in RAY and tpu_pods(item) else ()


def shape(pod: Pod) -> tuple[str, str, int] | None:
    """Accelerator, topology and chips of a host; None unless all are said and form a slice."""
    accelerator = pod.selector[ACCELERATOR_LABEL].text
    topology = pod.selector[TOPOLOGY_LABEL].text
    if accelerator is None or topology is None or not machines(accelerator, topology, pod.chips):
        return None
    return accelerator, topology, pod.chips


@lru_cache(1024)
def machines(accelerator: str, topology: str, chips: int | None = None) -> list[Machine]:
    """Machine types of which such a slice is made, on hosts of so many chips."""
    return [
        machine
        for machine in MACHINES.values()
        if GENERATIONS[machine.generation].gke_accelerator == accelerator
        and chips in (None, machine.chips)
        and topologies.is_legal(machine, topology)
    ]


def devices_per_chip(accelerator: str) -> int:
    """Of one that there is, as JAX sees its chips."""
    return next(
        generation.devices_per_chip
        for generation in GENERATIONS.values()
        if generation.gke_accelerator == accelerator
    )


def hosts(pod: Pod) -> int | None:
    """As the shape has them."""
    found = shape(pod)
    return None if found is None else topologies.chips(found[1]) // found[2]


def slices(pod: Pod) -> int:
    """The most copies that the group may have; 1 for what is no group."""
    if pod.group is None:
        return 1
    most, wanted = pod.group["maxReplicas"].number, pod.group["replicas"].number
    return most if most is not None and most < 2**31 - 1 else max(wanted or 0, 1)


def most_chips(item: Item) -> int:
    """Chips that the item's pods can ask for at once."""
    shapes = ((shape(pod), slices(pod)) for pod in tpu_pods(item))
    return sum(topologies.chips(found[1]) * count for found, count in shapes if found)


def preemptible(pod: Pod, classes: Iterable[Item]) -> bool:
    """Whether its nodes may be taken back: by its own choice, or by a rung of its class."""
    selector = pod.selector
    if any(selector[label] for label in SPOT_LABELS):
        return True
    if selector[PROVISIONING_LABEL].text in ("spot", "flex-start"):
        return True
    own = pod.compute_class
    return own is not None and any(
        priority["spot"].flag or priority["flexStart"]["enabled"].flag
        for item in classes
        if item.name == own
        for priority in item.root["spec"]["priorities"]
    )


def _of_ray(item: Item, cluster: Node) -> Iterator[Pod]:
    yield Pod(item, cluster["headGroupSpec"]["template"], "head")
    for group in cluster["workerGroupSpecs"]:
        yield Pod(item, group["template"], "worker", hosts=group["numOfHosts"], group=group)
    if item.kind == "RayJob" and (submitter := item.root["spec"]["submitterPodTemplate"]):
        yield Pod(item, submitter)
