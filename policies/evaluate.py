"""The verdict of all rules on a view: what was found, and what could not be judged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from policies.rule import Context, Rule, Subjects, level
from policies.rules import RULES
from policies.settings import DEFAULTS, OTHER, Settings
from policies.view import Fault, Item, MalformedError, Path, UnknownError, View, spelled

FORM = "documents-form"
"""Of a value that has not the form which Kubernetes or Google takes: no rule of its own, since any
rule may meet one."""


@dataclass(frozen=True)
class Finding:
    rule: str
    level: Literal["mandatory", "advisory"]
    fault: Fault

    @property
    def line(self) -> int | None:
        return self.fault.item.line_of(self.fault.path)

    @property
    def place(self) -> str:
        """The file and line, or the resource; then the field."""
        item = self.fault.item
        line = self.line
        where = item.where if line is None else f"{item.where}:{line}"
        named = f"{item.kind}/{item.name}" if item.name else item.kind
        path = f" {spelled(self.fault.path)}" if self.fault.path else ""
        return f"{where}: {named}{path}"

    @property
    def message(self) -> str:
        return f"{self.fault.what}; {self.fault.fix}"


@dataclass(frozen=True)
class NotEvaluated:
    """A rule that met an unknown value."""

    rule: str
    item: Item
    path: Path
    what: str
    """That is not known: the path, or what it stands for."""
    level: Literal["mandatory", "advisory"]
    """Mandatory under strict, if the rule is."""

    @property
    def message(self) -> str:
        named = f"{self.item.kind}/{self.item.name}"
        return f"{self.rule} was not evaluated for {named}: {self.what} is not known"


@dataclass(frozen=True)
class Verdict:
    findings: Sequence[Finding]
    not_evaluated: Sequence[NotEvaluated]

    @property
    def refused(self) -> bool:
        return any(one.level == "mandatory" for one in (*self.findings, *self.not_evaluated))


def evaluate(view: View, settings: Settings, environment: str) -> Verdict:
    context = Context(view, settings, environment)
    chosen = [(r, level(r, settings, environment)) for r in RULES.values()]
    active = [(one, at) for one, at in chosen if at != "off"]
    found: dict[tuple[Any, ...], Finding] = {}
    unknown: list[NotEvaluated] = []
    for of, items in (("resources", view.items), ("steps", view.steps)):
        rules = [(one, at) for one, at in active if one.of == of]
        for item in items:
            for outcome in _judge(item, rules, context):
                _sort(outcome, found, unknown)
    return Verdict([*found.values()], unknown)


def default_settings(environment: str) -> Settings:
    return DEFAULTS.get(environment, DEFAULTS[OTHER])


def _sort(
    outcome: Finding | NotEvaluated,
    found: dict[tuple[Any, ...], Finding],
    unknown: list[NotEvaluated],
) -> None:
    """Each once: several rules may meet one malformed value."""
    if isinstance(outcome, NotEvaluated):
        if outcome not in unknown[-len(RULES) :]:
            unknown.append(outcome)
        return
    fault = outcome.fault
    found.setdefault((outcome.rule, id(fault.item), fault.path, fault.what), outcome)


def _judge(
    item: Item, active: list[tuple[Rule, Any]], context: Context
) -> Iterator[Finding | NotEvaluated]:
    subjects: dict[Subjects, list[Any] | Exception] = {}
    for one, at in active:
        if one.over not in subjects:
            subjects[one.over] = _subjects(one.over, item)
        judged = subjects[one.over]
        if isinstance(judged, Exception):
            yield _could_not(judged, one, at, item, context)
            continue
        for subject in judged:
            try:
                yield from (Finding(one.id, at, fault) for fault in one.check(subject, context))
            except (UnknownError, MalformedError) as error:
                yield _could_not(error, one, at, item, context)


def _subjects(over: Subjects, item: Item) -> list[Any] | Exception:
    try:
        return [*over(item)]
    except (UnknownError, MalformedError) as error:
        return error


def _could_not(
    error: Exception, one: Rule, at: Any, item: Item, context: Context
) -> Finding | NotEvaluated:
    if isinstance(error, MalformedError):
        fault = Fault(item, error.path, f"is not {error.wanted}", "write it as the API has it")
        return Finding(FORM, "mandatory", fault)
    path, what = (error.path, error.what) if isinstance(error, UnknownError) else ((), "")
    at = at if context.settings.strict else "advisory"
    return NotEvaluated(one.id, item, path, what, at)
