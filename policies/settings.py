"""What a platform team may set for each environment: levels of rules, limits, and allowances."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

Level = Literal["mandatory", "advisory", "off"]


def _off(value: object) -> object:
    """What YAML makes of an `off` without quotes."""
    return "off" if value is False else value


_WrittenLevel = Annotated[Level, BeforeValidator(_off)]

OTHER = "staging"
"""The environment whose defaults hold for one of another name."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(_Model):
    registries: tuple[str, ...] | None = None
    """Patterns that the name of an image matches, such as *-docker.pkg.dev/*. None: any."""
    generations: tuple[str, ...] | None = None
    """Of TPUs, such as v6e. None: any."""
    zones: tuple[str, ...] | None = None
    """Where TPU nodes may be. None: any."""
    max_chips: Annotated[int, Field(ge=0)] | None = None
    """Of all TPU workloads together. None: any number."""
    max_usd_per_month: Annotated[int, Field(ge=0)] | None = None
    """Of all that is seen, at its worst known price. None: any."""
    lost_steps: Annotated[int, Field(ge=1)] = 1000
    """The most that a preempted run may lose, in steps, where nobody says how long one takes."""
    lost_seconds: Annotated[int, Field(ge=1)] = 900
    """The same in seconds, where it is said."""
    compile_seconds: Annotated[int, Field(ge=1)] = 1800
    """What a model server may take to compile before it first answers."""


class Allowances(_Model):
    replace: tuple[str, ...] = ()
    """Resources that may be replaced or deleted, by the name that Pulumi shows."""
    second_slice: tuple[str, ...] = ()
    """RayServices for which a second set of slices is there while they are upgraded."""


class Settings(_Model):
    """Of one environment."""

    strict: bool = False
    """Whether a rule that could not be evaluated fails."""
    levels: dict[str, _WrittenLevel] = {}
    """Of single rules, by id."""
    limits: Limits = Limits()
    allow: Allowances = Allowances()


class SettingsError(Exception):
    """Settings that cannot be used. One line a fault, each with the way out."""


_OWN_REGISTRY = ("*-docker.pkg.dev/*",)

DEFAULTS: Mapping[str, Settings] = {
    "dev": Settings(limits=Limits(lost_seconds=3600)),
    "staging": Settings(limits=Limits(registries=_OWN_REGISTRY)),
    "prod": Settings(limits=Limits(registries=_OWN_REGISTRY)),
}


class _File(_Model):
    environments: dict[str, Settings] = {}


def settings_of(environment: str, given: Any, rules: Mapping[str, Any]) -> Settings:
    """The defaults of an environment, with what `given` (a settings file's content) changes.

    Raises SettingsError.
    """
    try:
        file = _File.model_validate({} if given is None else given)
    except ValidationError as error:
        raise SettingsError("\n".join(_lines(error))) from None
    for name, own in file.environments.items():
        if unknown := [rule for rule in own.levels if rule not in rules]:
            place = f"environments.{name}.levels.{unknown[0]}"
            raise SettingsError(f"{place}: is no rule; use one of docs/policies.md")
    default = DEFAULTS.get(environment, DEFAULTS[OTHER])
    own = file.environments.get(environment, Settings())
    return default.model_copy(
        update={
            **({"strict": own.strict} if "strict" in own.model_fields_set else {}),
            "levels": own.levels,
            "limits": default.limits.model_copy(update=_set(own.limits)),
            "allow": own.allow,
        }
    )


def _set(limits: Limits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in limits.model_fields_set}


def _lines(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(str(part) for part in fault['loc']) or 'the file'}: {fault['msg'].lower()}; "
        "see docs/policies.md for what can be set"
        for fault in error.errors(include_url=False, include_context=False)
    ]
