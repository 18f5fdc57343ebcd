"""How `raytpu preflight` shows what it found: a table, or JSON."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from infra.cli.preflight import GIB, Outcome, Row
from infra.cli.report import print_line, print_table, stdout
from infra.preflight.estimate import Estimate
from workloads.preflight.program import Measured

HEADINGS = (
    "workload",
    "step",
    "slice",
    "mesh",
    "HBM a chip",
    "TFLOP a chip",
    "sent a chip",
    "time at best",
    "bound by",
    "utilisation",
)
_STEPS = ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def print_text(outcomes: Sequence[Outcome]) -> None:
    """Results to stdout; what could not be read or looked at to stderr."""
    out, piped = stdout()
    errors = Console(stderr=True, highlight=False)
    for outcome in outcomes:
        file = outcome.report.file
        if outcome.report.unreadable:
            print_line(errors, outcome.report.unreadable, "red")
        for problem in (*outcome.report.problems, *outcome.problems):
            print_line(out, f"{file}: {problem}", "red")
        for failure in outcome.failures:
            print_line(errors, f"{file}: {failure}", "red")
        if outcome.report.config and outcome.exit_code == 0:
            print_line(out, f"{file}: {_verdict(outcome)}", "green")
        for one in outcome.unknown:
            print_line(out, f"{file}: {one.where}: {one.why} (not checked)", "dim")
        for note in dict.fromkeys(_notes(outcome)):
            print_line(out, f"{file}: {note}", "dim")
        if outcome.rows:
            print_table(out, _table(outcome.rows, None if piped else box.SIMPLE))


def print_json(outcomes: Sequence[Outcome]) -> None:
    document = {"stacks": [_as_json(outcome) for outcome in outcomes]}
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _verdict(outcome: Outcome) -> str:
    count = len(outcome.rows)
    return f"{count} step{'s' if count != 1 else ''} compiled, and all fit" if count else "no step"


def _notes(outcome: Outcome) -> Iterator[str]:
    for row in outcome.rows:
        place = f"{row.subject.where}: {row.step.kind} of {row.subject.workload.name}"
        if row.step.settings.dtype == "float32":
            yield f"{place}: the time is that of bfloat16; float32 takes several times as long"
        if row.measured.unknown_loops:
            yield (
                f"{place}: {row.measured.unknown_loops} loops send something each round, and how "
                "many rounds is not known: they count as one"
            )
        generation = row.subject.tpu.generation
        if generation.devices_per_chip > 1:
            yield (
                f"{place}: the figures are those of a device, of which a chip of "
                f"{generation.name} is {generation.devices_per_chip}; each is taken to have its "
                "share of the chip's peaks, and of its links, which is an estimate"
            )
        if row.estimate and row.estimate.dcn_s is None:
            yield f"{place}: the time leaves out the network between slices of {generation.name}"


def _table(rows: Sequence[Row], frame: box.Box | None) -> Table:
    table = Table(box=frame, padding=(0, 2, 0, 0))
    for heading in HEADINGS:
        table.add_column(heading)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> tuple[str, ...]:
    chips, measured, expected = row.step.chips, row.measured, row.estimate
    times = f"{chips.slices} x " if chips.slices > 1 else ""
    place = f"{times}{chips.generation} {chips.topology}"
    known = (row.subject.workload.name, row.step.kind, place, str(row.step.mesh), _hbm(measured))
    if expected is None or measured.flops is None:
        return (*known, "", "", "", "", "")
    return (
        *known,
        f"{measured.flops / 1e12:.4g}",
        _sent(row),
        _duration(expected.step_s),
        expected.bound_by,
        _share(expected.utilisation),
    )


def _hbm(measured: Measured) -> str:
    used = measured.hbm_bytes
    amount = f"> {_size(measured.argument_bytes)}" if used is None else _size(used)
    return f"{amount} of {_size(measured.limit_bytes)}"


def _sent(row: Row) -> str:
    inside = sum(one.payload_bytes for one in row.measured.collectives if one.kind != "dcn")
    between = sum(one.payload_bytes for one in row.measured.collectives if one.kind == "dcn")
    return _size(inside) + (f", {_size(between)} between slices" if between else "")


def _size(amount: int) -> str:
    size, unit = next(((size, unit) for size, unit in _STEPS if amount >= size), (1, "B"))
    return f"{amount / size:.4g} {unit}"


def _share(utilisation: float) -> str:
    return f"at most {utilisation:.0%}" if utilisation >= 0.01 else "below 1%"  # noqa: PLR2004


def _duration(time_s: float) -> str:
    return f"{time_s:.3g} s" if time_s >= 1 else f"{time_s * 1e3:.3g} ms"


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "stack": outcome.report.file,
        "exit_code": outcome.exit_code,
        "unreadable": outcome.report.unreadable,
        "problems": [vars(one) for one in (*outcome.report.problems, *outcome.problems)],
        "failures": outcome.failures,
        "not_checked": [asdict(one) for one in outcome.unknown],
        "notes": [*dict.fromkeys(_notes(outcome))],
        "steps": [_row_as_json(row) for row in outcome.rows],
    }


def _row_as_json(row: Row) -> dict[str, Any]:
    return {
        "workload": row.subject.workload.name,
        "step": row.step.kind,
        "slice": row.subject.workload.slice,
        "chips": row.step.chips.model_dump(mode="json"),
        "mesh": row.step.mesh.axes,
        "fits": row.measured.fits,
        "cached": row.cached,
        **row.measured.model_dump(mode="json"),
        "estimate": None if row.estimate is None else _estimate_as_json(row.estimate),
    }


def _estimate_as_json(expected: Estimate) -> dict[str, Any]:
    return {
        **asdict(expected),
        "step_s": expected.step_s,
        "bound_by": expected.bound_by,
        "utilisation": expected.utilisation,
    }
