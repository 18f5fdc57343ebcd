"""What the local stack cannot do, and what it leaves out of a declaration meant for GKE."""

from collections.abc import Iterator
from itertools import combinations

from infra.config.entries import Entries
from infra.config.models import ClusterSpec, Hub
from infra.config.secrets import TOKEN
from infra.errors import Problem, quote

MAX_HOSTS = 16
"""Hosts of all slices that one machine may simulate: each is a raylet and a JAX process."""


def faults(entries: Entries) -> Iterator[Problem]:
    yield from _too_many_hosts(entries)
    yield from _slices_alike_to_ray(entries)
    yield from _slices_held_twice(entries)
    yield from _only_on_gke(entries)


def remarks(entries: Entries) -> Iterator[Problem]:
    for where, tpu in entries.slices.items():
        if tpu.fallback:
            what = "is not simulated: the local stack has the first shape alone"
            yield Problem(f"{where}.fallback", what, "try the others on GKE")
    for where, server in entries.served.items():
        if server.redis:
            what = "is not used: the local stack does not replace a lost head"
            yield Problem(f"{where}.redis", what, "try it on GKE")
    if TOKEN in entries.raw:
        what = "is not used: the local stack loads no model of the hub"
        yield Problem(f"raytpu:{TOKEN}", what, "leave it out")


def _too_many_hosts(entries: Entries) -> Iterator[Problem]:
    hosts = sum(tpu.workers for tpu in entries.slices.values())
    if hosts > MAX_HOSTS:
        parts = " + ".join(f"{tpu.workers} of {tpu.name}" for tpu in entries.slices.values())
        yield Problem(
            "raytpu:slices",
            f"{hosts} hosts ({parts}) are too many to simulate on one machine",
            f"declare at most {MAX_HOSTS}: smaller topologies or a smaller count",
        )


def _slices_alike_to_ray(entries: Entries) -> Iterator[Problem]:
    """Ray reserves slices by pod type alone, so one pod type must mean one shape."""
    for (_, one), (where, other) in combinations(entries.slices.items(), 2):
        same_shape = (one.topology, one.machine) == (other.topology, other.machine)
        if one.pod_type == other.pod_type and not same_shape:
            yield Problem(
                where,
                f"{other.topology} on {other.machine.name} and {one.topology} on "
                f"{one.machine.name} of slice {quote(one.name)} are both {one.pod_type} to Ray, "
                "which reserves slices by that name alone",
                "give both one shape and machine type, or one of them another number of chips",
            )


def _slices_held_twice(entries: Entries) -> Iterator[Problem]:
    """A slice that serves is held for good: whatever else asks for it would wait for ever."""
    holders: dict[str, str] = {}
    for where, server in entries.served.items():
        holders.setdefault(server.slice, where)
    for where, workload in entries.on_tpu.items():
        holder = holders.get(workload.slice, where)
        if holder != where:
            yield entries.scope.problem(
                f"{where}.slice",
                workload.slice,
                f"is held by {holder}, which serves from all copies of it and never ends",
                "declare another slice",
            )


def _only_on_gke(entries: Entries) -> Iterator[Problem]:
    for where, server in entries.served.items():
        if isinstance(server.model, Hub):
            what = "a model of the hub is not available locally yet"
            fix = "use the name of a train workload, or {path: ...}"
            yield Problem(f"{where}.model", what, fix)
    for where, workload in entries.workloads.items():
        if isinstance(workload, ClusterSpec):
            what = "the local stack is itself a Ray cluster to work on"
            yield Problem(f"{where}.kind", what, "leave the workload out")
