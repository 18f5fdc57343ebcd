"""Ways to get capacity that Google, or a compute class, does not offer together.

Sources: GKE's cluster autoscaler (7d25050), the schema of the ComputeClass (8067eae), and what
cluster-toolkit (1047080) refuses before it calls Google.
"""

from collections.abc import Iterator

from infra.config.cluster import AutopilotCluster, ExistingCluster, GkeCluster
from infra.config.entries import Entries
from infra.config.models import SliceJobSpec
from infra.errors import Problem
from infra.tpu.capacity import FlexStart, Queued, Reservation, Rung, written
from infra.tpu.slice import TpuSlice

_CANNOT_BE_KEPT = {
    "flex-start": "has no nodes until they are asked for, and none after its run",
    "queued": "has no nodes until a ProvisioningRequest asks for them",
}
_AFTER_A_LOSS = {
    "train": "goes on from its last checkpoint",
    "infer": "goes on from its finished parts",
    "spmd": "goes on from what the program kept",
    "check": "begins anew",
}


def faults(entries: Entries) -> Iterator[Problem]:
    for where, tpu in entries.slices.items():
        yield from _node_pools(where, tpu, entries)
        yield from _kept_nodes(where, tpu)
    for where, shape in entries.shapes:
        yield from _repeated(where, shape)
        yield from _workload_policy(where, shape, entries)
    for where, shape, rung in entries.rungs:
        yield from _no_flex_start(where, shape, rung)
        yield from _queued_class(where, shape, rung)
        yield from _shared_reservation(where, shape, rung, entries)


def remarks(entries: Entries) -> Iterator[Problem]:
    for where, tpu in entries.slices.items():
        if tpu.keep_nodes and isinstance(entries.cluster, ExistingCluster):
            what = "has no effect: this stack makes no node pool in a cluster of others"
            yield Problem(f"{where}.keep_nodes", what, "leave it out")
    for where, shape, rung in entries.rungs:
        match rung.terms:
            case FlexStart(queued=True):
                yield Problem(
                    f"{where}.flex_start.queued",
                    "was refused for TPUs by GKE in December 2025, and shown by Google in June "
                    "2026, so it takes a GKE version of 2026",
                    "leave it out if the node pool is refused",
                )
            case Queued():
                yield Problem(
                    f"{where}.queued",
                    "needs a ProvisioningRequest, as Kueue makes them, and this stack has none",
                    "install Kueue, or use flex_start",
                )
            case Reservation(block=str()) if shape.provision == "compute_class":
                yield Problem(
                    f"{where}.reservation.block",
                    "is documented for compute classes of GPUs alone",
                    "leave it out if GKE does not find the reservation",
                )
            case _:
                pass
    yield from _short_runs(entries)


def _node_pools(where: str, tpu: TpuSlice, entries: Entries) -> Iterator[Problem]:
    if tpu.provision != "node_pools":
        return
    place = f"{where}.provision"
    if isinstance(entries.cluster, AutopilotCluster):
        what = "'node_pools' does not exist on Autopilot, which makes nodes by compute classes"
        yield Problem(place, what, "use compute_class, or leave it out")
    if len(tpu.capacity) > 1:
        what = f"'node_pools' takes one kind of capacity, and {len(tpu.capacity)} are listed"
        yield Problem(place, what, "use compute_class, or list one")
    if tpu.fallback:
        what = "'node_pools' has no order between shapes, and fallback lists others"
        yield Problem(place, what, "use compute_class, or leave fallback out")


def _kept_nodes(where: str, tpu: TpuSlice) -> Iterator[Problem]:
    if not tpu.keep_nodes:
        return
    place = f"{where}.keep_nodes"
    if tpu.provision == "compute_class":
        what = "true is not possible: GKE takes away what a compute class made and nothing uses"
        yield Problem(place, what, "use provision node_pools, or leave it out")
    for kind in sorted({rung.kind for rung in tpu.capacity} & {*_CANNOT_BE_KEPT}):
        what = f"true is not possible: {kind} {_CANNOT_BE_KEPT[kind]}"
        yield Problem(place, what, "leave it out, or use other capacity")


def _repeated(where: str, shape: TpuSlice) -> Iterator[Problem]:
    for index, rung in enumerate(shape.capacity):
        first = shape.capacity.index(rung)
        if first != index:
            what = f"asks for the same as capacity[{first}], which comes before it"
            yield Problem(f"{where}.capacity[{index}]", what, "leave it out")


def _workload_policy(where: str, shape: TpuSlice, entries: Entries) -> Iterator[Problem]:
    """What holds the hosts of such a slice together has to exist on Google Cloud."""
    if (
        isinstance(entries.cluster, ExistingCluster)
        and shape.provision == "compute_class"
        and shape.workload_policy
    ):
        yield Problem(
            f"{where}.topology",
            f"{shape.topology} of {shape.generation.name} needs a workload policy, and in a "
            "cluster of others this stack makes nothing but Kubernetes objects",
            "use provision node_pools and a pool that is there, or mode gke",
        )


def _no_flex_start(where: str, shape: TpuSlice, rung: Rung) -> Iterator[Problem]:
    if rung.kind == "flex-start" and not shape.generation.flex_start:
        what = f"does not exist for {shape.generation.name}"
        yield Problem(f"{where}.flex_start", what, "use on_demand, spot or reservation")


def _queued_class(where: str, shape: TpuSlice, rung: Rung) -> Iterator[Problem]:
    if shape.provision != "compute_class":
        return
    fix = "use flex_start, or provision node_pools"
    match rung.terms:
        case Queued():
            yield Problem(f"{where}.queued", "cannot be asked for by a compute class", fix)
        case FlexStart(queued=True):
            what = "true cannot be asked for by a compute class"
            yield Problem(f"{where}.flex_start.queued", what, "leave it out")
        case _:
            pass


def _shared_reservation(
    where: str, shape: TpuSlice, rung: Rung, entries: Entries
) -> Iterator[Problem]:
    """GKE's autoscaler refuses a shared reservation together with a placement policy.

    Google's cluster-toolkit (1047080) has that GKE also refuses any part of one.
    """
    owner = rung.terms.project if isinstance(rung.terms, Reservation) else None
    cluster = entries.cluster
    own = cluster.project if isinstance(cluster, GkeCluster | AutopilotCluster) else None
    if not owner or owner == own:
        return
    if isinstance(rung.terms, Reservation) and rung.terms.block:
        yield Problem(
            f"{where}.reservation.block",
            f"{rung.terms.block!r} is a part of another project's reservation, and GKE takes such "
            "a reservation only as a whole",
            "leave it out, or use a reservation of the cluster's own project",
        )
    if shape.multi_host:
        yield Problem(
            f"{where}.reservation.project",
            f"{owner!r} is another project, and GKE takes no shared reservation for a slice of "
            f"several hosts, such as {shape.topology} on {shape.machine.name}",
            "use a reservation of the cluster's own project, or a slice of one host",
        )


def _short_runs(entries: Entries) -> Iterator[Problem]:
    """Flex-start ends a host after its run, whatever goes on there."""
    for where, workload in entries.on_tpu.items():
        tpu = entries.slice_of(workload)
        runs = [
            rung.terms.max_run_duration
            for shape in (tpu.shapes if tpu else ())
            for rung in shape.capacity
            if isinstance(rung.terms, FlexStart)
        ]
        if not runs:
            continue
        shortest = written(min(runs))
        if not isinstance(workload, SliceJobSpec):
            what = f"may be on hosts of flex-start, which end after {shortest}"
            yield Problem(f"{where}.slice", what, "it then waits for others")
        elif min(runs) < workload.deadline:
            deadline = entries.scope.show(written(workload.deadline))
            what = f"{deadline} is more than the {shortest} that hosts of flex-start run"
            yield Problem(f"{where}.deadline", what, f"it then {_AFTER_A_LOSS[workload.kind]}")
