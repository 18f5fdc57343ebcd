"""Whether the CPU pool can hold the pods without TPU: one that fits nowhere is waited for for ever.

Judged as if the node's own pods took nothing, so what is refused here fits for certain nowhere.
"""

from collections.abc import Iterator

from infra.config.cluster import CpuPool, GkeCluster
from infra.config.entries import Entries
from infra.config.models import DataSpec
from infra.errors import Problem, quote
from infra.ray.sizes import DATA_CPUS, DATA_MEMORY_GIB, HEAD_CPUS, HEAD_MEMORY_GIB
from infra.tpu.node import for_all_pods

_GIB_PER_VCPU = {"standard": 4, "highmem": 8}
_HIGHCPU_GIB_PER_VCPU = 2
"""The most of any family; n2 and e2 have 1."""


def faults(entries: Entries) -> Iterator[Problem]:
    if not isinstance(entries.cluster, GkeCluster):
        return
    pool = entries.cluster.cpu_pool
    if _pods(pool, HEAD_CPUS, HEAD_MEMORY_GIB) == 0:
        yield Problem(
            "raytpu:cluster.cpu_pool.machine_type",
            f"{quote(pool.machine_type)} is too small for the head of a Ray cluster, which asks "
            f"for {HEAD_CPUS} CPUs and {HEAD_MEMORY_GIB} GiB",
            "use n2-standard-8 or larger",
        )
        return
    most = _pods(pool, DATA_CPUS, DATA_MEMORY_GIB) * pool.max_nodes
    for where, job in entries.workloads.items():
        if isinstance(job, DataSpec) and job.workers + 1 > most:
            yield entries.scope.problem(
                f"{where}.workers",
                job.workers,
                f"and a head are more pods than the {most} that {pool.max_nodes} nodes of "
                f"{pool.machine_type} hold, and none works before all are there",
                f"use {most - 1} or fewer, or a larger raytpu:cluster.cpu_pool.max_nodes",
            )


def _pods(pool: CpuPool, cpus: int, memory_gib: int) -> int:
    """How many of such pods a node holds."""
    _, size, vcpus = pool.machine_type.split("-")
    per_vcpu = _GIB_PER_VCPU.get(size, _HIGHCPU_GIB_PER_VCPU)
    room_cpus, room_gib = for_all_pods(int(vcpus), int(vcpus) * per_vcpu)
    return max(0, int(min(room_cpus // cpus, room_gib // memory_gib)))
