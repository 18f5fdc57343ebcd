"""The nodes that GKE would have for a stack: one a host of each slice, and some without chips.

Labels and taints as GKE sets them (its cluster autoscaler 7d25050, "Plan TPUs in GKE", read
2026-08). A node's capacity is the machine's; what pods may ask for is what the catalogue leaves of
it when the system's own pods, which do not run here, have theirs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from infra.config import ExistingCluster, LocalCluster, StackConfig
from infra.config.cluster import region
from infra.gke import names
from infra.gke.addresses import CPU_PODS_PER_NODE, TPU_PODS_PER_NODE
from infra.gke.compute_class import CLASS_LABEL, class_name
from infra.ray.namespace import sets_at_once
from infra.tpu.capacity import Kind
from infra.tpu.catalog import CHIP_RESOURCE
from infra.tpu.node import IMAGE_GIB, allocatable, for_all_pods, pod_disk_gib
from infra.tpu.slice import TpuSlice

Manifest = dict[str, Any]

NODE_POOL_LABEL = "cloud.google.com/gke-nodepool"
PROVISIONING_LABEL = "cloud.google.com/gke-provisioning"
CPU_NODES = 2
CPU_MACHINE, CPU_VCPUS, CPU_MEMORY_GIB = "n2-standard-64", 64, 256
"""Room for the heads of many Ray clusters."""
CPU_DISK_GIB = 100
DEFAULT_ZONE = "us-central1-a"
"""Of a stack that names none and has no slice."""

_PROVISIONING: dict[Kind, str] = {"spot": "spot", "flex-start": "flex-start"}
_CAPACITY_KEYS: dict[Kind, str] = {
    "spot": "cloud.google.com/gke-spot",
    "flex-start": "cloud.google.com/gke-flex-start",
    "queued": "cloud.google.com/gke-queued",
}
"""Labels and taints at once. Of nodes that a class makes GKE may leave the taint out."""


def stack_nodes(config: StackConfig) -> list[Manifest]:
    """Of the preferred shape of each slice, by the first way of its ladder; and the CPU nodes.

    Where an upgrade brings up a second cluster, there are slices for both.

    Raises TypeError for a local stack, which has no nodes.
    """
    if isinstance(config.cluster, LocalCluster):
        raise TypeError(f"stack {config.stack} runs on this machine and has no nodes")
    made_here = not isinstance(config.cluster, ExistingCluster)
    nodes: list[Manifest] = []
    for tpu in config.slices:
        by_class = class_name(config, tpu)
        own = {names.SLICE_LABEL: tpu.name} if made_here and by_class is None else {}
        zone = _zone(config.cluster.zones, tpu)
        sets = sets_at_once(config, tpu)
        nodes += slice_nodes(tpu, zone=zone, compute_class=by_class, labels=own, sets=sets)
    zones = [*config.cluster.zones, *(_zone((), tpu) for tpu in config.slices), DEFAULT_ZONE]
    return [*nodes, *cpu_nodes(zones[0])]


def slice_nodes(
    tpu: TpuSlice,
    *,
    zone: str,
    compute_class: str | None = None,
    labels: Mapping[str, str] | None = None,
    sets: int = 1,
) -> list[Manifest]:
    """The hosts of all copies of one shape.

    Args:
        tpu: The shape.
        zone: Where they are.
        compute_class: The class that made them, if one did.
        labels: Those of whoever made the node pools.
        sets: How often all copies are there.
    """
    kind = tpu.capacity[0].kind
    common = {
        **(labels or {}),
        **tpu.node_selector,
        PROVISIONING_LABEL: _PROVISIONING.get(kind, "standard"),
        "node.kubernetes.io/instance-type": tpu.machine.name,
    }
    taints = {CHIP_RESOURCE: "present"}
    if key := _CAPACITY_KEYS.get(kind):
        common[key] = taints[key] = "true"
    if compute_class:
        common[CLASS_LABEL] = taints[CLASS_LABEL] = compute_class
    pools = [*zip(names.pool_names(tpu), tpu.pools, strict=True)]
    more = [(f"{pool}-{number}", size) for number in range(2, sets + 1) for pool, size in pools]
    return [
        _node(pool, index, zone, labels=common, taints=taints, status=_tpu_status(tpu))
        for pool, size in (*pools, *more)
        for index in range(size)
    ]


def cpu_nodes(zone: str, count: int = CPU_NODES) -> list[Manifest]:
    """Nodes without chips and without taints."""
    labels = {
        PROVISIONING_LABEL: "standard",
        "node.kubernetes.io/instance-type": CPU_MACHINE,
    }
    cpus, memory_gib = map(math.floor, for_all_pods(CPU_VCPUS, CPU_MEMORY_GIB))
    disk_gib = pod_disk_gib(CPU_DISK_GIB, autopilot=False) + IMAGE_GIB
    status = _status(
        {"cpu": CPU_VCPUS, "memory": CPU_MEMORY_GIB, "disk": CPU_DISK_GIB},
        {"cpu": cpus, "memory": memory_gib, "disk": disk_gib},
        pods=CPU_PODS_PER_NODE,
    )
    return [
        _node("cpu", index, zone, labels=labels, taints={}, status=status) for index in range(count)
    ]


def _tpu_status(tpu: TpuSlice) -> Manifest:
    machine, room = tpu.machine, allocatable(tpu.machine)
    disk_gib = pod_disk_gib(tpu.boot_disk_gib, autopilot=False) + IMAGE_GIB
    return _status(
        {"cpu": machine.vcpus, "memory": machine.memory_gib, "disk": tpu.boot_disk_gib},
        {"cpu": room.cpus, "memory": room.memory_gib, "disk": disk_gib},
        pods=TPU_PODS_PER_NODE,
        extended=tpu.chip_request,
    )


def _status(
    capacity: Mapping[str, int],
    room: Mapping[str, int],
    *,
    pods: int,
    extended: Mapping[str, str] | None = None,
) -> Manifest:
    def resources(of: Mapping[str, int]) -> dict[str, str]:
        return {
            "cpu": str(of["cpu"]),
            "memory": f"{of['memory']}Gi",
            "ephemeral-storage": f"{of['disk']}Gi",
            "pods": str(pods),
            **(extended or {}),
        }

    return {"capacity": resources(capacity), "allocatable": resources(room)}


def _node(
    pool: str,
    index: int,
    zone: str,
    *,
    labels: Mapping[str, str],
    taints: Mapping[str, str],
    status: Manifest,
) -> Manifest:
    name = f"gke-{pool}-{index}"
    place = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region(zone),
        NODE_POOL_LABEL: pool,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**place, **labels}},
        "spec": {
            "providerID": f"gce://raytpu/{zone}/{name}",
            "taints": [
                {"key": key, "value": value, "effect": "NoSchedule"}
                for key, value in taints.items()
            ],
        },
        "status": status,
    }


def _zone(zones: Sequence[str], tpu: TpuSlice) -> str:
    """Where the stack file leaves it to GKE, the first in which Google documents the generation."""
    return tpu.capacity[0].terms.zone or [*zones, *tpu.generation.zones][0]
