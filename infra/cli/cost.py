"""What `raytpu cost` does: reads a stack, prices it, and compares it with another version."""

import sys
from pathlib import Path
from typing import Literal

from infra.cli import cost_report
from infra.cli.check import Report, check, cloud_faults
from infra.cli.versions import UnknownVersionError, version
from infra.config.stackfile import UnreadableError
from infra.cost.difference import Comparison
from infra.cost.estimate import Estimate, Usage, estimate
from infra.cost.prices import PUBLIC, Prices, with_own
from infra.errors import ConfigError

Form = Literal["text", "json", "markdown"]

_LOCAL = ("takes nothing of a cloud, so it has no price", "name another stack")


def show(
    stack: str, *, against: str | None, prices_file: Path | None, usage: Usage, form: Form
) -> int:
    """Prints what the stack costs; the exit code."""
    try:
        prices = with_own(prices_file) if prices_file else PUBLIC
    except (ConfigError, UnreadableError) as error:
        return _refuse([str(error)], 2)
    report = check(stack)
    if faults := [*cloud_faults(report, *_LOCAL)]:
        return _refuse(faults, max(1, report.exit_code))
    try:
        compared = _compared(report, against, prices, usage) if against else None
    except UnknownVersionError as error:
        return _refuse([str(error)], 2)
    priced = _priced(report, prices, usage)
    cost_report.PRINTERS[form](report.file, priced, compared)
    return 1 if priced.over_budget else 0


def _priced(report: Report, prices: Prices, usage: Usage) -> Estimate:
    if report.config is None:
        raise TypeError(f"{report.file} has no config to price")
    return estimate(report.config, prices, usage)


def _compared(report: Report, against: str, prices: Prices, usage: Usage) -> Comparison:
    other = version(against, Path(report.file))
    if other.report is None:
        return Comparison(other.name, None)
    if faults := [*cloud_faults(other.report, *_LOCAL)]:
        return Comparison(other.name, None, why_not=faults[0])
    return Comparison(other.name, _priced(other.report, prices, usage))


def _refuse(lines: list[str], exit_code: int) -> int:
    for line in lines:
        sys.stderr.write(f"{line}\n")
    return exit_code
