"""Whether a run can go where it may: to each fallback of its slice, or on with fewer copies of it.

Its mesh there is derived (workloads.train.choices); what the run does on its own slice is judged by
the other rules.
"""

from collections.abc import Iterator
from math import lcm

from infra.config import memory_rules
from infra.config.entries import Entries
from infra.config.models import TrainSpec
from infra.errors import Problem, quote
from infra.tpu.capacity import written
from infra.tpu.slice import TpuSlice
from workloads.contract import told_devices
from workloads.train.choices import settings_on


def faults(entries: Entries) -> Iterator[Problem]:
    for place, tpu in entries.slices.items():
        for where, trainer in entries.trained.items():
            if tpu.name == trainer.slice:
                yield from _fewer(where, trainer, tpu, entries)
            if tpu.fallback and tpu.name == trainer.slice:
                yield from _late(where, trainer, tpu, entries)
                yield from _mixed(place, trainer, tpu, entries)
                for index, shape in enumerate(tpu.fallback):
                    at = f"{place}.fallback[{index}]"
                    yield from _carried(at, where, trainer, shape, entries)


def _fewer(where: str, trainer: TrainSpec, tpu: TpuSlice, entries: Entries) -> Iterator[Problem]:
    """An elastic run computes on any number of slices from `min_slices` to all."""
    place, least, scope = f"{where}.min_slices", trainer.min_slices, entries.scope
    if least is None:
        return
    if tpu.fallback:
        what = "goes on with fewer copies, and its slice has a fallback to go to"
        yield scope.problem(place, least, what, "leave min_slices out, or the fallback")
    if least > tpu.count:
        what = f"is more than the {tpu.count} of slice {quote(tpu.name)}"
        yield scope.problem(place, least, what, f"use 1 to {tpu.count}")
    for count in range(least, tpu.count):
        if trainer.global_batch % (devices := count * tpu.devices):
            there = told_devices(devices, tpu.generation.devices_per_chip)
            yield scope.problem(
                place,
                least,
                f"leaves {count} slices, over whose {there} {where}.global_batch "
                f"of {scope.quote(trainer.global_batch)} does not divide",
                f"use a multiple of {lcm(*range(least, tpu.count + 1)) * tpu.devices}",
            )
            return


def _late(where: str, trainer: TrainSpec, tpu: TpuSlice, entries: Entries) -> Iterator[Problem]:
    if trainer.fallback_after * len(tpu.shapes) >= trainer.deadline:
        show = entries.scope.show
        yield Problem(
            f"{where}.fallback_after",
            f"{show(written(trainer.fallback_after))} for each of {len(tpu.shapes)} shapes leaves "
            f"no time to run: deadline is {show(written(trainer.deadline))}",
            "use a longer deadline, or a shorter fallback_after",
        )


def _mixed(place: str, trainer: TrainSpec, tpu: TpuSlice, entries: Entries) -> Iterator[Problem]:
    """Ray Train must know the hosts of one shape from those of the others."""
    for shape in tpu.shapes:
        if shape.multi_host and not shape.reserved_whole:
            yield Problem(
                place,
                f"{shape.topology} on {shape.machine.name} is one host to Ray Train, which for "
                f"workload {entries.scope.quote(trainer.name)} would mix its hosts with those of "
                "the other shapes",
                "use a machine type that holds the topology in one host, or another topology",
            )


def _carried(
    at: str, where: str, trainer: TrainSpec, shape: TpuSlice, entries: Entries
) -> Iterator[Problem]:
    """`at`, `where`: the places of the fallback and of the workload."""
    show, devices = entries.scope.show, shape.devices * shape.count
    each = shape.generation.devices_per_chip
    what = f"{shape.topology} on {shape.machine.name}"
    if shape.count > 1 and not shape.multi_host:
        yield Problem(
            at,
            f"{shape.count} times {what} is {shape.count} hosts, and the one program of {where} "
            "spans several slices only if they are of several hosts",
            "use a topology of several hosts, or count 1",
        )
    if shape.devices % trainer.mesh.tensor:
        yield Problem(
            at,
            f"the {told_devices(shape.devices, each)} of {what} are no multiple of "
            f"{where}.mesh.tensor, which is {show(str(trainer.mesh.tensor))}",
            "use another topology, or a tensor axis that divides both",
        )
        return
    if trainer.global_batch % devices:
        yield Problem(
            at,
            f"{where}.global_batch is {show(str(trainer.global_batch))}, which does not divide "
            f"over the {told_devices(devices, each)} of {what}",
            f"use another topology, or a multiple of {devices}",
        )
    there = settings_on(trainer.settings(), shape.contract())
    moved = trainer.model_copy(update={"mesh": there.mesh})
    yield from memory_rules.training(at, moved, shape, entries)
