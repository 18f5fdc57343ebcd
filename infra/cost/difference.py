"""What changes in a month's price from one version of a stack to another."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from infra.cost.estimate import Estimate, Line


@dataclass(frozen=True)
class Comparison:
    """With another version."""

    name: str
    before: Estimate | None
    """None if the stack was not there, or could not be priced."""
    why_not: str = ""
    """Why it could not."""


class Change(NamedTuple):
    """Of a line that has another price, or other hours, than before."""

    name: str
    before: Line | None
    after: Line | None


def changes(before: Estimate | None, after: Estimate) -> Iterator[Change]:
    """In the order of the newer version, what is gone last. Without an older all is new."""
    old = {line.name: line for line in _all(before)}
    new = {line.name: line for line in _all(after)}
    for name in {**new, **old}:
        change = Change(name, old.get(name), new.get(name))
        if change.before != change.after:
            yield change


def _all(estimate: Estimate | None) -> tuple[Line, ...]:
    return (*estimate.lines, *estimate.upgrades) if estimate else ()
