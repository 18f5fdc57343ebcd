"""The questions of `raytpu new`: a flag each, and what may be answered after those before."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.text import Text

from infra.cli import offers
from infra.config.cluster import Project, region
from infra.config.models import CostCenter, Namespace
from infra.errors import ConfigError, Problem
from infra.names import Name, matching
from infra.tpu.capacity import ReservationPart

Given = Mapping[str, str]
"""Answers as text, by their flags. A list has commas."""

Budget = Annotated[str, matching(r"none|[1-9]\d{0,9}", "is no budget", "write whole USD, or none")]


def _nothing(_: Given) -> Sequence[str]:
    return ()


def _must_be_answered(_: Given) -> str | None:
    return None


def _always(_: Given) -> bool:
    return True


_MISSING = "is missing, and nobody is there to ask"
_TEXT = TypeAdapter(str)


@dataclass(frozen=True)
class Question:
    flag: str
    text: str
    form: TypeAdapter[str] = _TEXT
    offers: Callable[[Given], Sequence[str]] = _nothing
    """What may be answered; anything of the form, where none is named."""
    after: tuple[str, ...] = ()
    """Flags that the offers depend on."""
    several: bool = False
    default: Callable[[Given], str | None] = _must_be_answered
    asked: Callable[[Given], bool] = _always


def _topologies(given: Given) -> Sequence[str]:
    return offers.shapes(given["machine-type"], given["workload"])


def _zones(given: Given) -> Sequence[str]:
    return offers.zones(given["machine-type"])


def _capacity(given: Given) -> Sequence[str]:
    return offers.capacity(given["machine-type"], parts(given["zones"]))


def _is_reserved(given: Given) -> bool:
    return "reservation" in parts(given["capacity"])


TEAM = Question("team", "Team", TypeAdapter(Namespace))
QUESTIONS = (
    Question(
        "environment",
        "Environment: dev, staging, prod or another",
        TypeAdapter(Name),
        default=lambda _: "dev",
    ),
    Question("project", "Google project", TypeAdapter(Project)),
    Question(
        "cost-center",
        "Cost centre, for the bill",
        TypeAdapter(CostCenter),
        default=lambda given: given["team"],
    ),
    Question("workload", "What it is for", offers=lambda _: offers.PURPOSES),
    Question("machine-type", "Machine type of a host", offers=lambda _: offers.machine_types()),
    Question(
        "topology", "Topology of the slice", offers=_topologies, after=("machine-type", "workload")
    ),
    Question(
        "zones", "Zones, all of one region", offers=_zones, after=("machine-type",), several=True
    ),
    Question(
        "capacity",
        "Capacity, most preferred first",
        offers=_capacity,
        after=("machine-type", "zones"),
        several=True,
    ),
    Question(
        "reservation",
        "Name of the reservation",
        TypeAdapter(ReservationPart),
        after=("capacity",),
        asked=_is_reserved,
    ),
    Question(
        "budget", "Budget in USD a month, or none", TypeAdapter(Budget), default=lambda _: "none"
    ),
)


def parts(answer: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in answer.split(","))


def answer_all(team: str, flags: Given, console: Console | None) -> dict[str, str]:
    """From flags, and for the rest from the console, if there is one.

    Without one, all that is missing is told at once, but for what depends on it. Raises
    ConfigError.
    """
    given = {TEAM.flag: checked(TEAM, team, {})}
    problems: list[Problem] = []
    for question in QUESTIONS:
        try:
            if not {*question.after} <= given.keys():
                problems += _not_asked(question, flags)
            elif question.asked(given):
                given[question.flag] = _answer(question, flags, given, console)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return given


def _answer(question: Question, flags: Given, given: Given, console: Console | None) -> str:
    flag = flags.get(question.flag)
    if console is not None:
        return _ask(question, flag, given, console)
    if flag is not None:
        return checked(question, flag, given)
    if default := question.default(given):
        return default
    known = question.offers(given)
    fix = f"give one of {', '.join(known)}" if known else "give one"
    raise ConfigError([Problem(f"--{question.flag}", _MISSING, fix)])


def _not_asked(question: Question, flags: Given) -> list[Problem]:
    """Of what depends on an answer that is at fault: it can be missing, but not be judged."""
    if question.flag in flags or question.asked is not _always:
        return []
    fix = f"give one that goes with --{' and --'.join(question.after)}"
    return [Problem(f"--{question.flag}", _MISSING, fix)]


def _ask(question: Question, flag: str | None, given: Given, console: Console) -> str:
    """Again until it is answered, unless the flag is sound."""
    if flag is not None:
        try:
            return checked(question, flag, given)
        except ConfigError as error:
            console.print(Text(str(error), style="red"), soft_wrap=True)
    for known in question.offers(given):
        console.print(Text(f"  {known}{offers.remark(question.flag, known)}", style="dim"))
    default = question.default(given)
    prompt = f"{question.text} ({default}): " if default else f"{question.text}: "
    while True:
        answer = console.input(Text(prompt, style="bold")).strip() or default
        if answer is None:
            continue
        try:
            return checked(question, answer, given)
        except ConfigError as error:
            console.print(Text(str(error), style="red"), soft_wrap=True)


def checked(question: Question, answer: str, given: Given) -> str:
    """The answer without needless spaces. Raises ConfigError."""
    known = question.offers(given)
    found = parts(answer) if question.several else (answer.strip(),)
    where = f"--{question.flag}"
    problems = [problem for part in found for problem in _faults(question, where, part, known)]
    if len({*found}) < len(found):
        problems.append(Problem.of(where, answer, "names one twice", "name each once"))
    if question.flag == "zones" and not problems and len({region(zone) for zone in found}) > 1:
        fix = "name zones of one region"
        problems.append(Problem.of(where, answer, "are zones of several regions", fix))
    if problems:
        raise ConfigError(problems)
    return ",".join(found)


def _faults(question: Question, where: str, part: str, known: Sequence[str]) -> list[Problem]:
    if known:
        fix = f"use {', '.join(known)}"
        return [] if part in known else [Problem.of(where, part, "is not offered", fix)]
    try:
        question.form.validate_python(part)
    except ValidationError as error:
        context = error.errors()[0].get("ctx", {})
        return [Problem.of(where, part, context["what"], context["fix"])]
    return []
