"""Rules of one's own programs, and of the check that may come before any job on a slice."""

from collections.abc import Iterator

from infra.config.cluster import LocalCluster
from infra.config.entries import Entries
from infra.config.models import CheckSpec, SliceJobSpec, SpmdSpec
from infra.errors import Problem


def faults(entries: Entries) -> Iterator[Problem]:
    yield from _code_of_this_machine(entries)
    yield from _checked_fallbacks(entries)
    yield from _checked_fewer_slices(entries)


def _code_of_this_machine(entries: Entries) -> Iterator[Problem]:
    if isinstance(entries.cluster, LocalCluster):
        return
    for where, workload in entries.programs.items():
        if isinstance(workload, SpmdSpec) and workload.code is not None:
            yield entries.scope.problem(
                f"{where}.code",
                workload.code,
                "is on this machine, which no pod can read",
                "build it into raytpu:images.ray, and leave code out",
            )


def _checked_fallbacks(entries: Entries) -> Iterator[Problem]:
    """The check waits for one shape, and the job would then not come to its second choice."""
    for where, workload in entries.on_tpu.items():
        if not isinstance(workload, SliceJobSpec) or isinstance(workload, CheckSpec):
            continue
        tpu = entries.slice_of(workload)
        if workload.slice_check and tpu and tpu.fallback:
            yield Problem(
                f"{where}.slice_check",
                f"looks at {tpu.topology} on {tpu.machine.name} alone, and slice "
                f"{entries.scope.quote(tpu.name)} has a fallback",
                "leave slice_check out, or the fallback",
            )


def _checked_fewer_slices(entries: Entries) -> Iterator[Problem]:
    """The check waits for all slices, and the run would not begin with fewer."""
    for where, trainer in entries.trained.items():
        if trainer.slice_check and trainer.min_slices:
            yield entries.scope.problem(
                f"{where}.min_slices",
                trainer.min_slices,
                "would do for the run, but slice_check waits for all slices",
                "leave one of the two out",
            )
