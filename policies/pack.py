"""The rules as policies of a Pulumi policy pack.

There are two, one for each level, rather than one for each rule. The level of a rule depends on the
stack's environment, which a policy learns only with the resources; and the SDK decodes all of them
anew for each policy, which would make a preview with forty policies take seconds longer. What a
rule finds begins with its id.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    PolicyResource,
    ReportViolation,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.deserialize import serialize_properties

from policies.evaluate import Finding, NotEvaluated, Verdict, evaluate
from policies.preview import resource, stated
from policies.rules import RULES
from policies.settings import SettingsError, settings_of
from policies.view import View, spelled

CONFIG = PolicyConfigSchema(
    properties={
        "environment": {"type": "string"},
        "environments": {"type": "object"},
        "strict": {"type": "boolean"},
    }
)
"""`environments` as in a settings file; `environment` and `strict` are options of raytpu review."""

_LEVELS: Mapping[Literal["mandatory", "advisory"], EnforcementLevel] = {
    "mandatory": EnforcementLevel.MANDATORY,
    "advisory": EnforcementLevel.ADVISORY,
}


def policies() -> list[StackValidationPolicy]:
    return [
        StackValidationPolicy(
            name=f"raytpu-{level}",
            description=f"Rules that are {level} in the stack's environment",
            validate=partial(_report, level),
            enforcement_level=enforcement,
            config_schema=CONFIG,
        )
        for level, enforcement in _LEVELS.items()
    ]


def judge(resources: Sequence[PolicyResource], config: Mapping[str, Any]) -> Verdict:
    """Raises SettingsError."""
    items = [
        resource(one.resource_type, one.name, one.urn, serialize_properties(one.props))
        for one in resources
    ]
    environment = config.get("environment") or stated(items) or _stack(resources)
    given: dict[str, Any] = {"environments": config.get("environments") or {}}
    settings = settings_of(environment, given, RULES)
    if config.get("strict"):
        settings = settings.model_copy(update={"strict": True})
    return evaluate(View(items, whole=True), settings, environment)


def _report(
    level: Literal["mandatory", "advisory"], args: StackValidationArgs, report: ReportViolation
) -> None:
    try:
        verdict = judge(args.resources, args.get_config())
    except SettingsError as error:
        report(f"the pack's configuration: {error}", None)
        return
    for one in (*verdict.findings, *verdict.not_evaluated):
        if one.level == level:
            report(_message(one), _urn(one))


def _message(one: Finding | NotEvaluated) -> str:
    if isinstance(one, NotEvaluated):
        return one.message
    path = spelled(one.fault.path)
    return f"{one.rule}: {path}: {one.message}" if path else f"{one.rule}: {one.message}"


def _urn(one: Finding | NotEvaluated) -> str:
    return one.item.where if isinstance(one, NotEvaluated) else one.fault.item.where


def _stack(resources: Sequence[PolicyResource]) -> str:
    """The stack's own name, where nothing is labelled with an environment."""
    return resources[0].urn.split("::")[0].removeprefix("urn:pulumi:") if resources else ""
