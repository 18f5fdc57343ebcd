"""What `raytpu new` does: asks, checks, prices, and only then writes a team's stack file."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from rich.console import Console

from infra.cli import cost_report, report
from infra.cli.check import Report, check_text, new_file, shown
from infra.cli.offers import Answers, Purpose
from infra.cli.questions import answer_all, parts
from infra.cli.stack_text import stack_text
from infra.config.stackfile import UnreadableError
from infra.cost.estimate import Estimate, Usage, estimate
from infra.cost.prices import PUBLIC
from infra.errors import ConfigError, Problem


def create(team: str, flags: Mapping[str, str], *, force: bool) -> int:
    """Writes the file, and prints what it declares and costs; the exit code."""
    try:
        answers = _read(answer_all(team, flags, _console()))
        path = _free(new_file(answers.stack), force=force)
        text = stack_text(answers)
        checked = check_text(text.encode(), path.name, shown(path))
        priced = _priced(checked)
        _write(path, text)
    except (ConfigError, UnreadableError) as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, UnreadableError) else 1
    except EOFError:
        sys.stderr.write("no answer; nothing is written\n")
        return 1
    report.print_text([checked])
    cost_report.print_text(checked.file, priced, None)
    sys.stdout.write(
        f"\nwritten: {checked.file}. Next:\n"
        f"  tools/run pulumi stack init {answers.stack}\n"
        f"  tools/run pulumi up --stack {answers.stack}\n"
    )
    return 0


def _console() -> Console | None:
    """None if nobody is there to ask."""
    return Console() if sys.stdin.isatty() and sys.stdout.isatty() else None


def _read(given: Mapping[str, str]) -> Answers:
    return Answers(
        team=given["team"],
        environment=given["environment"],
        project=given["project"],
        cost_center=given["cost-center"],
        purpose=cast("Purpose", given["workload"]),  # one of those that were offered
        machine_type=given["machine-type"],
        topology=given["topology"],
        zones=parts(given["zones"]),
        capacity=parts(given["capacity"]),
        reservation=given.get("reservation"),
        budget=None if given["budget"] == "none" else int(given["budget"]),
    )


def _free(path: Path, *, force: bool) -> Path:
    if path.exists() and not force:
        what = "is there already"
        raise ConfigError([Problem(shown(path), what, "use --force to overwrite it")])
    return path


def _priced(checked: Report) -> Estimate:
    """Raises ConfigError for faults, or a price above the budget."""
    if checked.config is None:
        raise ConfigError(checked.problems)
    priced = estimate(checked.config, PUBLIC, Usage())
    if priced.over_budget and priced.total:
        what = f"{priced.budget:,} is less than the {priced.total.most:,.0f} USD a month that the "
        fix = "use a larger budget, a smaller slice, or cheaper capacity alone"
        raise ConfigError([Problem("--budget", f"{what}stack costs at worst", fix)])
    return priced


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be written ({error.strerror}); see to the folder"
        ) from None
