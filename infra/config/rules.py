"""Rules between the entries of a stack: names, references, and what cannot exist side by side."""

from collections.abc import Iterator
from itertools import combinations

from infra.config import fit
from infra.config.entries import Entries
from infra.config.models import Folder, Origin
from infra.errors import Problem, quote

LOCAL_MAX_HOSTS = 16
"""Hosts of all slices that one machine may simulate: each is a raylet and a JAX process."""


def faults(entries: Entries) -> Iterator[Problem]:
    rules = (
        _names_used_twice,
        _slices_alike_to_ray,
        _too_many_hosts,
        _unknown_slices,
        _unknown_origins,
        _slices_held_twice,
        fit.faults,
    )
    for rule in rules:
        yield from rule(entries)


def remarks(entries: Entries) -> Iterator[Problem]:
    """What is allowed and yet probably not meant."""
    used = {workload.slice for workload in entries.on_tpu.values()}
    for where, tpu in entries.slices.items():
        if tpu.name not in used:
            yield Problem(where, f"no workload uses slice {quote(tpu.name)}", "it stands idle")
    for where, server in entries.served.items():
        trained = entries.model_of(server)
        data = trained and entries.data_of(trained)
        if data and server.max_sequence_length > data.sequence_length:
            yield Problem(
                f"{where}.max_sequence_length",
                f"{entries.scope.quote(server.max_sequence_length)} is longer than any sequence "
                f"the model is trained on, which have {entries.scope.quote(data.sequence_length)}",
                "answers that long will be poor",
            )


def _names_used_twice(entries: Entries) -> Iterator[Problem]:
    for key in ("slices", "workloads"):
        quoted = quote if key == "slices" else entries.scope.quote
        places: dict[str, str] = {}
        for where, name in entries.names(key):
            if name in places:
                yield Problem(where, f"{quoted(name)} is also {places[name]}", "choose another")
            places.setdefault(name, where)


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


def _too_many_hosts(entries: Entries) -> Iterator[Problem]:
    hosts = sum(tpu.workers for tpu in entries.slices.values())
    if hosts > LOCAL_MAX_HOSTS:
        parts = " + ".join(f"{tpu.workers} of {tpu.name}" for tpu in entries.slices.values())
        yield Problem(
            "raytpu:slices",
            f"{hosts} hosts ({parts}) are too many to simulate on one machine",
            f"declare at most {LOCAL_MAX_HOSTS}: smaller topologies or a smaller count",
        )


def _unknown_slices(entries: Entries) -> Iterator[Problem]:
    names = [name for _, name in entries.names("slices")]
    fix = f"use {' or '.join(map(quote, names))}" if names else "declare it under raytpu:slices"
    for where, workload in entries.on_tpu.items():
        if workload.slice not in names:
            yield entries.scope.problem(f"{where}.slice", workload.slice, "is no slice", fix)


def _unknown_origins(entries: Entries) -> Iterator[Problem]:
    for where, trainer in entries.trained.items():
        yield from _unknown_origin(entries, f"{where}.data", trainer.data, "data")
    for where, server in entries.served.items():
        yield from _unknown_origin(entries, f"{where}.model", server.model, "train")


def _unknown_origin(entries: Entries, where: str, origin: Origin, kind: str) -> Iterator[Problem]:
    names = [name for _, name in entries.names("workloads", kind)]
    if isinstance(origin, Folder) or origin in names:
        return
    choice = " or ".join(map(entries.scope.quote, names)) or f"the name of a {kind} workload"
    what = f"is no workload of kind {kind}"
    yield entries.scope.problem(where, origin, what, f"use {choice}, or {{path: ...}}")


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
