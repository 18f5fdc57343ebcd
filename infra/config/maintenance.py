"""When GKE may upgrade a cluster, and when it must not."""

import math
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from infra.names import NOT_EMPTY, Name, fault, matching
from workloads.settings import Settings

RFC_3339 = "%Y-%m-%dT%H:%M:%SZ"
LONGEST_EXCLUSION = timedelta(days=90)

_UPGRADE_HOURS = 48
_WEEKS_FOR_CERTAIN = 4


def _checked_moment(text: str) -> str:
    try:
        datetime.strptime(text, RFC_3339)  # noqa: DTZ007 - it ends in Z
    except ValueError:
        fix = "write one of UTC such as 2026-12-20T00:00:00Z"
        raise fault("is no moment in time", fix) from None
    return text


Moment = Annotated[str, AfterValidator(_checked_moment)]


class Window(Settings):
    """When GKE may upgrade: weekly, in UTC."""

    days: Annotated[
        tuple[Literal["MO", "TU", "WE", "TH", "FR", "SA", "SU"], ...],
        Field(strict=False),
        NOT_EMPTY,
    ]
    start: Annotated[
        str,
        matching(r"([01]\d|2[0-3]):[0-5]\d", "is no time of day", 'write one such as "02:00"'),
    ]
    hours: Annotated[int, Field(ge=4, le=24, validate_default=True)] = 6

    @field_validator("hours")
    @classmethod
    def _is_long_enough(cls, hours: int, info: ValidationInfo) -> int:
        """GKE wants 48 hours in any 32 days; those have four of each weekday for certain."""
        days = len({*info.data.get("days", ())})
        least = math.ceil(_UPGRADE_HOURS / _WEEKS_FOR_CERTAIN / days) if days else hours
        if hours < least:
            raise fault(
                f"on {days} day{'s' if days > 1 else ''} a week is less than the 48 hours a month "
                "that GKE needs",
                f"use {least} or more, or more days",
            )
        return hours


class Exclusion(Settings):
    """When GKE must not upgrade, such as during a long run: RFC 3339 in UTC, at most 90 days."""

    name: Name
    start: Moment
    end: Moment

    @field_validator("end")
    @classmethod
    def _is_after_the_start(cls, end: str, info: ValidationInfo) -> str:
        start = info.data.get("start")
        if start is None:
            return end
        first, last = (datetime.strptime(text, RFC_3339) for text in (start, end))  # noqa: DTZ007
        if not timedelta() < last - first <= LONGEST_EXCLUSION:
            days = LONGEST_EXCLUSION.days
            raise fault("is not within 90 days after start", f"use at most {days} days")
        return end


def _names_once(exclusions: tuple[Exclusion, ...]) -> tuple[Exclusion, ...]:
    """GKE keeps them by name, so a second one would replace the first."""
    names = [exclusion.name for exclusion in exclusions]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise fault(f"names {' and '.join(twice)} twice", "give each a name of its own")
    return exclusions


class Maintenance(Settings):
    window: Window | None = None
    exclusions: Annotated[
        tuple[Exclusion, ...], Field(strict=False), AfterValidator(_names_once)
    ] = ()
