"""A rule: a function over one subject of a view, and what is said about it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from policies.settings import Level, Settings
from policies.view import Fault, Item, View

S = TypeVar("S")

Subjects = Callable[[Item], Iterable[Any]]
"""What a rule judges in an item: each by itself, so that what is unknown in one hides no other."""


class Levels(NamedTuple):
    """What a finding means, by environment. Another environment is taken for staging."""

    dev: Level
    staging: Level
    prod: Level

    def of(self, environment: str) -> Level:
        match environment:
            case "dev":
                return self.dev
            case "prod":
                return self.prod
            case _:
                return self.staging


MANDATORY = Levels("mandatory", "mandatory", "mandatory")
ADVISORY = Levels("advisory", "advisory", "advisory")
LENIENT_IN_DEV = Levels("advisory", "mandatory", "mandatory")
ONLY_PROD = Levels("off", "off", "mandatory")


@dataclass(frozen=True)
class Context:
    view: View
    settings: Settings
    environment: str


@dataclass(frozen=True)
class Rule:
    id: str
    title: str
    """What must hold, as a sentence."""
    why: str
    levels: Levels
    over: Subjects
    check: Callable[[Any, Context], Iterator[Fault]]
    pains: tuple[str, ...]
    """Reported faults that it answers."""
    limits: tuple[str, ...]
    """Settings that it reads."""
    of: Literal["resources", "steps"]


RULES: dict[str, Rule] = {}
"""All rules by id, once `policies.rules` is imported."""


def rule(
    id_: str,
    title: str,
    *,
    why: str,
    levels: Levels,
    over: Callable[[Item], Iterable[S]],
    pains: tuple[str, ...] = (),
    limits: tuple[str, ...] = (),
    of: Literal["resources", "steps"] = "resources",
) -> Callable[[Callable[[S, Context], Iterator[Fault]]], Callable[[S, Context], Iterator[Fault]]]:
    """Registers the function below it."""

    def register(
        check: Callable[[S, Context], Iterator[Fault]],
    ) -> Callable[[S, Context], Iterator[Fault]]:
        if id_ in RULES:
            raise ValueError(f"there are two rules {id_}")
        RULES[id_] = Rule(id_, title, why, levels, over, check, pains, limits, of)
        return check

    return register


def kinds(*names: str) -> Callable[[Item], Iterable[Item]]:
    """Items of these kinds."""

    def chosen(item: Item) -> Iterable[Item]:
        return (item,) if item.kind in names else ()

    return chosen


def every(item: Item) -> Iterable[Item]:
    return (item,)


def level(rule: Rule, settings: Settings, environment: str) -> Level:
    levels: Mapping[str, Level] = settings.levels
    return levels.get(rule.id, rule.levels.of(environment))
