"""Rules between the entries of a stack: names, references, and what cannot exist side by side."""

from collections.abc import Iterator
from types import ModuleType

from infra.config import (
    base_rules,
    capacity_rules,
    cpu_rules,
    fallback_rules,
    fit,
    gke_rules,
    image_rules,
    kubernetes_rules,
    local_rules,
    memory_rules,
    program_rules,
    vllm_rules,
    zone_rules,
)
from infra.config.cluster import AutopilotCluster, ExistingCluster, GkeCluster, LocalCluster
from infra.config.entries import Entries
from infra.config.models import Folder, Hub, ModelOrigin
from infra.errors import Problem, quote


def faults(entries: Entries) -> Iterator[Problem]:
    rules = (
        _names_used_twice,
        _unknown_slices,
        _unknown_origins,
        base_rules.faults,
        fit.faults,
        fallback_rules.faults,
        memory_rules.faults,
        program_rules.faults,
        image_rules.faults,
        vllm_rules.faults,
        cpu_rules.faults,
    )
    for rule in rules:
        yield from rule(entries)
    for part in _of_mode(entries):
        yield from part.faults(entries)


def remarks(entries: Entries) -> Iterator[Problem]:
    """What is allowed and yet probably not meant."""
    used = {workload.slice for workload in entries.on_tpu.values()}
    for where, tpu in entries.slices.items():
        if tpu.name not in used:
            yield Problem(where, f"no workload uses slice {quote(tpu.name)}", "it stands idle")
    for where, user in {**entries.served, **entries.inferred}.items():
        trained = entries.model_of(user)
        data = trained and entries.data_of(trained)
        if data and user.max_sequence_length > data.sequence_length:
            yield Problem(
                f"{where}.max_sequence_length",
                f"{entries.scope.quote(user.max_sequence_length)} is longer than any sequence "
                f"the model is trained on, which have {entries.scope.quote(data.sequence_length)}",
                "answers that long will be poor",
            )
    for part in (vllm_rules, *_of_mode(entries)):
        yield from part.remarks(entries)


def _names_used_twice(entries: Entries) -> Iterator[Problem]:
    for key in ("slices", "workloads"):
        quoted = quote if key == "slices" else entries.scope.quote
        places: dict[str, str] = {}
        for where, name in entries.names(key):
            if name in places:
                yield Problem(where, f"{quoted(name)} is also {places[name]}", "choose another")
            places.setdefault(name, where)


def _unknown_slices(entries: Entries) -> Iterator[Problem]:
    names = [name for _, name in entries.names("slices")]
    fix = f"use {' or '.join(map(quote, names))}" if names else "declare it under raytpu:slices"
    for where, workload in entries.on_tpu.items():
        if workload.slice not in names:
            yield entries.scope.problem(f"{where}.slice", workload.slice, "is no slice", fix)


def _unknown_origins(entries: Entries) -> Iterator[Problem]:
    for where, trainer in entries.trained.items():
        yield from _unknown_origin(entries, f"{where}.data", trainer.data, "data")
        if trainer.base is not None:
            yield from _unknown_origin(entries, f"{where}.base", trainer.base, "train")
    for where, user in {**entries.served, **entries.inferred}.items():
        yield from _unknown_origin(entries, f"{where}.model", user.model, "train")


def _unknown_origin(
    entries: Entries, where: str, origin: ModelOrigin, kind: str
) -> Iterator[Problem]:
    names = [name for _, name in entries.names("workloads", kind)]
    if isinstance(origin, Folder | Hub) or origin in names:
        return
    choice = " or ".join(map(entries.scope.quote, names)) or f"the name of a {kind} workload"
    what = f"is no workload of kind {kind}"
    yield entries.scope.problem(where, origin, what, f"use {choice}, or {{path: ...}}")


def _of_mode(entries: Entries) -> Iterator[ModuleType]:
    match entries.cluster:
        case LocalCluster():
            yield local_rules
        case GkeCluster() | AutopilotCluster() | ExistingCluster():
            yield from (capacity_rules, zone_rules, kubernetes_rules, gke_rules)
        case _:
            pass
