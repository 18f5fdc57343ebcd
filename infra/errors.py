"""Errors that a user sees: where, what, and the way out, each in one line."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One fault of the user's input."""

    where: str
    """The place in the user's own words, e.g. "raytpu:slices[0].topology"."""
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.fix}"


class ConfigError(Exception):
    """All faults of an input, reported together: one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class LocalError(Exception):
    """The local stack could not do what was asked. One line that ends with the way out."""
