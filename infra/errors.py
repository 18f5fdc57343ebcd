"""Errors that a user sees: where, what, and the way out, each in one line."""

from collections.abc import Iterable
from dataclasses import dataclass

_QUOTE_LIMIT = 60


def quote(value: object) -> str:
    """A value of the user's as it may appear in a message: one line, never long, never nested.

    A mapping or list is only called so, since it may hold what must not be shown.
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = ("false", "true")[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= _QUOTE_LIMIT else f"{text[:_QUOTE_LIMIT]}..."


@dataclass(frozen=True)
class Problem:
    """One fault of the user's input."""

    where: str
    """The place in the user's own words, e.g. "raytpu:slices[0].topology"."""
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.fix}"

    @classmethod
    def of(cls, where: str, value: object, what: str, fix: str) -> "Problem":
        """A fault that begins with the value at fault, of which nothing else is said if empty."""
        empty = value is None or value == ""
        return cls(where, "is empty" if empty else f"{quote(value)} {what}", fix)


class ConfigError(Exception):
    """All faults of an input, reported together: one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class LocalError(Exception):
    """The local stack could not do what was asked. One line that ends with the way out."""

    # Pulumi shows what a dynamic provider raises as Python formats it, with the module before the
    # name unless it is this one.
    __module__ = "builtins"
