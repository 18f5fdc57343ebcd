"""The ladder of a slice's capacity as a GKE ComputeClass, by which GKE makes the nodes itself.

Most mistakes here are silent: GKE accepts the class, and the pods wait for ever. So every priority
says all that GKE would otherwise guess. Sources: the CRD (compute-class-api 8067eae), GKE's cluster
autoscaler (7d25050) and "About custom ComputeClasses", read 2026-08.
"""

from typing import Any

from infra.config import ExistingCluster, GkeCluster, LocalCluster, ServeSpec, StackConfig
from infra.gke.addresses import TPU_PODS_PER_NODE
from infra.gke.names import bounded, node_account, workload_policy
from infra.gke.version import CLASS_RESERVATION_ZONES, reaches
from infra.tpu.capacity import FlexStart, OnDemand, Reservation, Rung, Spot
from infra.tpu.catalog import MACHINES
from infra.tpu.slice import TpuSlice

Manifest = dict[str, Any]

CLASS_LABEL = "cloud.google.com/compute-class"


def class_name(config: StackConfig, tpu: TpuSlice) -> str | None:
    """None if this stack makes the nodes. Classes are known to the whole cluster, by name alone."""
    if tpu.provision == "node_pools":
        return None
    declared = next(one for one in config.slices if tpu.name in {s.name for s in one.shapes})
    return bounded(f"raytpu-{config.stack}-{declared.name}", 63)


def compute_class(config: StackConfig, tpu: TpuSlice) -> Manifest:
    """Of a slice that is provisioned by one, its fallbacks included."""
    spec: Manifest = {
        # Otherwise a pod that finds no rung gets an ordinary node, on which it never starts.
        "whenUnsatisfiable": "DoNotScaleUp",
        "nodePoolAutoCreation": {"enabled": True},
        "activeMigration": {"optimizeRulePriority": migrates(config, tpu)},
        "priorities": [
            priority
            for shape in tpu.shapes
            for rung in shape.capacity
            for priority in _priorities(config, tpu, shape, rung)
        ],
    }
    if isinstance(config.cluster, GkeCluster):
        spec["nodePoolConfig"] = {"serviceAccount": node_account(config)}
    return {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": {"name": class_name(config, tpu)},
        "spec": spec,
    }


def migrates(config: StackConfig, tpu: TpuSlice) -> bool:
    """Whether GKE moves pods back up the ladder, once a better rung has room.

    It evicts them first. A service of several copies goes on answering meanwhile; a service of one
    would be away for as long as it compiles, and a training run would fall back to its checkpoint.
    """
    serves = any(isinstance(w, ServeSpec) and w.slice == tpu.name for w in config.workloads)
    return tpu.provision == "compute_class" and serves and tpu.count > 1


def _priorities(config: StackConfig, tpu: TpuSlice, shape: TpuSlice, rung: Rung) -> list[Manifest]:
    """One a zone: all hosts of a slice are in one, and GKE matches the list as a whole."""
    if isinstance(rung.terms, Reservation):
        # The zone is the reservation's own. GKE takes no location beside it.
        where = [{"reservations": _reservations(config, rung.terms)}]
    else:
        where = [{"location": {"zones": [zone]}} for zone in _zones(config, rung)] or [{}]
    return [{**_priority(config, tpu, shape, rung), **place} for place in where]


def _priority(config: StackConfig, tpu: TpuSlice, shape: TpuSlice, rung: Rung) -> Manifest:
    """What is left out matches anything: without `spot`, spot nodes that exist already."""
    priority: Manifest = {
        "tpu": {
            "type": shape.generation.gke_accelerator,
            "count": shape.chips_per_host,
            "topology": shape.topology,
        },
        **_machine_type(shape),
        "spot": isinstance(rung.terms, Spot),
        **_flex_start(tpu, rung),
        "maxPodsPerNode": TPU_PODS_PER_NODE,
        "storage": _storage(shape),
    }
    if isinstance(rung.terms, OnDemand | Spot):
        priority["reservations"] = {"affinity": "None"}
    if policy := workload_policy(config, shape):
        priority["placement"] = {"policyName": policy}
    return priority


def _zones(config: StackConfig, rung: Rung) -> tuple[str, ...]:
    """None in a cluster of others of which the stack file names none: GKE then chooses."""
    if isinstance(config.cluster, LocalCluster):
        raise TypeError("the local stack has no compute classes")
    return (rung.terms.zone,) if rung.terms.zone else config.cluster.zones


def _machine_type(shape: TpuSlice) -> Manifest:
    """Only where type and chips leave it open."""
    machine = shape.machine
    alike = (machine.generation, machine.chips)
    same = [one for one in MACHINES.values() if (one.generation, one.chips) == alike]
    return {"machineType": machine.name} if len(same) > 1 else {}


def _flex_start(tpu: TpuSlice, rung: Rung) -> Manifest:
    """Said on every rung of a ladder that has one: left out, it matches flex-start nodes too."""
    if isinstance(rung.terms, FlexStart):
        run_s = int(rung.terms.max_run_duration.total_seconds())
        return {"flexStart": {"enabled": True}, "maxRunDurationSeconds": run_s}
    ladder = [other for shape in tpu.shapes for other in shape.capacity]
    if any(isinstance(other.terms, FlexStart) for other in ladder):
        return {"flexStart": {"enabled": False}}
    return {}


def _storage(shape: TpuSlice) -> Manifest:
    disk = shape.generation.boot_disk
    return {"bootDiskSize": shape.boot_disk_gib, **({"bootDiskType": disk} if disk else {})}


def _reservations(config: StackConfig, terms: Reservation) -> Manifest:
    entry: Manifest = {"name": terms.name}
    if project := _project(config, terms):
        entry["project"] = project
    if terms.zone and _zones_can_be_said(config):
        entry["zones"] = [terms.zone]
    if terms.block:
        sub_block = {"reservationSubBlock": {"name": terms.sub_block}} if terms.sub_block else {}
        entry["reservationBlock"] = {"name": terms.block, **sub_block}
    return {"affinity": "Specific", "specific": [entry]}


def _project(config: StackConfig, terms: Reservation) -> str | None:
    if isinstance(config.cluster, ExistingCluster | LocalCluster):
        return terms.project
    return terms.project or config.cluster.project


def _zones_can_be_said(config: StackConfig) -> bool:
    """An older CRD drops the field without a word, so only for a version that is known."""
    if isinstance(config.cluster, LocalCluster) or config.cluster.version is None:
        return False
    return reaches(config.cluster.version, CLASS_RESERVATION_ZONES.version)
