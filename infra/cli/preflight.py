"""What `raytpu preflight` does: reads stacks, has their steps compiled, judges what comes out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from infra.cli.check import PROJECT_FILE, Report, check
from infra.config import StackConfig
from infra.errors import Problem
from infra.preflight.compiler import Compiler, CompilerError
from infra.preflight.estimate import Estimate, estimate
from infra.preflight.nearest import Ask, Need, nearest
from infra.preflight.programs import Subject, Unknown, steps, subjects
from workloads.contract import device_noun
from workloads.preflight.program import Answer, Measured, ServeStep, TrainStep

GIB = 2**30
CACHE = Path(".raytpu/preflight")


@dataclass(frozen=True)
class Row:
    """A step that was looked at."""

    subject: Subject
    step: TrainStep | ServeStep
    measured: Measured
    cached: bool
    estimate: Estimate | None


@dataclass
class Outcome:
    """What came out for one stack."""

    report: Report
    rows: list[Row] = field(default_factory=list[Row])
    problems: list[Problem] = field(default_factory=list[Problem])
    unknown: list[Unknown] = field(default_factory=list[Unknown])
    failures: list[str] = field(default_factory=list[str])
    """Why steps could not be looked at."""

    @property
    def exit_code(self) -> int:
        if self.failures:
            return 2
        return max(self.report.exit_code, 1 if self.problems else 0)


class Asker:
    """The compiler, and what a terminal shows while it works."""

    def __init__(self, compiler: Compiler, progress: Progress) -> None:
        self._compiler, self._progress = compiler, progress

    def __call__(self, step: TrainStep | ServeStep, said: str = "") -> Answer:
        chips = step.chips
        times = f"{chips.slices} x " if chips.slices > 1 else ""
        what = f"{step.kind} for {times}{chips.generation} {chips.topology}, mesh {step.mesh}"
        task = self._progress.add_task(f"compiling {said}{what}", total=None)
        try:
            return self._compiler.ask(step)
        finally:
            self._progress.remove_task(task)


def preflight(stacks: Sequence[str], timeout_s: float) -> list[Outcome]:
    """Each stack judged by itself."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False)
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
        Compiler(_cache(), timeout_s) as compiler,
    ):
        return [_judge(check(stack), Asker(compiler, bar)) for stack in stacks]


def _cache() -> Path:
    """In the project around the current folder, or else in that folder."""
    here = Path.cwd()
    root = next((one for one in (here, *here.parents) if (one / PROJECT_FILE).is_file()), here)
    return root / CACHE


def _judge(report: Report, ask: Asker) -> Outcome:
    outcome = Outcome(report)
    for subject in _sound(report.config):
        if isinstance(subject, Unknown):
            outcome.unknown.append(subject)
            continue
        try:
            _look(subject, outcome, ask)
        except CompilerError as error:
            outcome.failures.append(f"{subject.where}: {subject.workload.name} {error}")
    return outcome


def _sound(config: StackConfig | None) -> Iterator[Subject | Unknown]:
    if config:
        yield from subjects(config)


def _look(subject: Subject, outcome: Outcome, ask: Asker) -> None:
    """Raises CompilerError."""
    tpu, name, rows = subject.tpu, subject.workload.name, list[Row]()
    for step in steps(subject):
        answer = ask(step, f"{name}: ")
        if answer.measured is None:
            outcome.problems.append(_refused(subject, answer))
            continue
        expected = estimate(answer.measured, tpu)
        rows.append(Row(subject, step, answer.measured, answer.cached, expected))
    outcome.rows.extend(rows)
    if too_large := [row for row in rows if not row.measured.fits]:
        need = Need.of(row.measured for row in too_large)
        fix = _way_out(subject, need, lambda step: ask(step, f"{name} otherwise: "))
        outcome.problems.append(Problem(subject.where, _excess(subject, too_large, need), fix))


def _way_out(subject: Subject, need: Need, ask: Ask) -> str:
    if subject.derived:
        return "leave this fallback out, take one of more chips, or a smaller global_batch"
    found = nearest(subject, need, ask)
    if found is None:
        return (
            f"no mesh, batch or slice of {subject.tpu.machine.name} that was tried fits: take a "
            "smaller model or another generation"
        )
    return f"use {found.said}, which needs {found.hbm_bytes / GIB:.2f}"


def _refused(subject: Subject, answer: Answer) -> Problem:
    what, _, fix = (answer.refused or "").rpartition("; ")
    return Problem(subject.where, f"{subject.workload.name}: {what}", fix)


def _excess(subject: Subject, rows: list[Row], need: Need) -> str:
    kinds = " and ".join(row.step.kind for row in rows)
    whole = (need.argument_bytes + need.scratch_bytes) / GIB
    atleast = "" if need.scratch_bytes else "more than "
    noun = device_noun(rows[0].subject.tpu.generation.devices_per_chip)
    return (
        f"{kinds} of {subject.workload.name} needs {atleast}{whole:.2f} GiB of HBM a {noun}, and "
        f"of slice {subject.workload.slice} it may have {need.limit_bytes / GIB:.2f}"
    )
