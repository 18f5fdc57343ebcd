"""How Google can be asked for the hosts of a slice: what a user lists, most preferred first.

Limits and their sources: flex-start runs for 10 minutes to 7 days (GKE's autoscaler, 7d25050, and
"About flex-start"); a reservation for TPUs is always a specific one, for GKE knows no other.
"""

import re
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)

from infra.names import NOT_EMPTY, Project, fault
from workloads.settings import Settings

FLEX_START_RUN = (timedelta(minutes=10), timedelta(days=7))
"""The shortest and the longest run that may be asked for."""

Kind = Literal["on-demand", "spot", "flex-start", "queued", "reservation"]

LONGEST = timedelta(days=365)
"""Of all durations; Kubernetes counts them in seconds of 32 bits."""

_SIZES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d{1,8})([smhd])")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-(ai\d+)?[a-z]")
_RESERVATION_PART = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise fault("is no length of time", "write a number and a unit, such as 30m, 12h or 7d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def written(duration: timedelta) -> str:
    """As in a stack file, in the largest unit that keeps it whole."""
    seconds = int(duration.total_seconds())
    size, unit = next((size, unit) for size, unit in _SIZES if seconds % size == 0)
    return f"{seconds // size}{unit}"


def _checked_duration(duration: timedelta) -> timedelta:
    if not timedelta() < duration <= LONGEST:
        raise fault("is no time to wait", f"use 1s to {written(LONGEST)}")
    return duration


def _checked_zone(zone: str) -> str:
    if not _ZONE.fullmatch(zone):
        raise fault("is no zone of Google Cloud", "write one such as us-east5-b")
    return zone


def _checked_run(run: timedelta) -> timedelta:
    shortest, longest = FLEX_START_RUN
    if not shortest <= run <= longest:
        raise fault("is no run that flex-start offers", "use 10m to 7d")
    return run


def _checked_part(name: str) -> str:
    if not _RESERVATION_PART.fullmatch(name):
        raise fault("cannot name a reservation, or a part of one", "use the name that Google lists")
    return name


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    AfterValidator(_checked_duration),
    PlainSerializer(written, when_used="json"),
]
Zone = Annotated[str, AfterValidator(_checked_zone)]
ReservationPart = Annotated[str, AfterValidator(_checked_part)]


class Terms(Settings):
    kind: ClassVar[Kind]
    zone: Zone | None = None
    """One of the cluster's zones; without it, each of them is asked in their order."""


class OnDemand(Terms):
    """Not promised; never taken back."""

    kind = "on-demand"


class Spot(Terms):
    """Cheaper; may be taken back after 30 seconds' notice."""

    kind = "spot"


class FlexStart(Terms):
    """Waits for capacity, then runs for at most so long."""

    kind = "flex-start"

    max_run_duration: Annotated[Duration, AfterValidator(_checked_run)] = FLEX_START_RUN[1]
    queued: bool = False
    """Through a ProvisioningRequest, all at once. GKE has refused it on TPUs and later shown it."""


class Queued(Terms):
    """Asked for by a ProvisioningRequest, as Kueue makes them."""

    kind = "queued"


class Reservation(Terms):
    """Capacity that was bought ahead. The zone is the reservation's own."""

    kind = "reservation"

    name: ReservationPart
    project: Project | None = None
    """Of its owner, if it is shared by another project."""
    block: ReservationPart | None = None
    sub_block: ReservationPart | None = None

    @field_validator("sub_block")
    @classmethod
    def _is_in_a_block(cls, sub_block: str | None, info: ValidationInfo) -> str | None:
        if sub_block is not None and info.data.get("block") is None:
            raise fault("is a part of no block", "name its block as well")
        return sub_block

    @property
    def path(self) -> str:
        """As a node pool names it."""
        whole = f"projects/{self.project}/reservations/{self.name}" if self.project else self.name
        block = f"/reservationBlocks/{self.block}" if self.block else ""
        sub_block = f"/reservationSubBlocks/{self.sub_block}" if self.sub_block else ""
        return f"{whole}{block}{sub_block}"


class Rung(Settings):
    """One way to get the hosts: exactly one of these keys."""

    on_demand: OnDemand | None = None
    spot: Spot | None = None
    flex_start: FlexStart | None = None
    queued: Queued | None = None
    reservation: Reservation | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "Rung":
        given = [name for name in Rung.model_fields if getattr(self, name) is not None]
        if len(given) > 1:
            raise fault(
                f"asks for {' and '.join(given)} at once, which exclude each other",
                "write one entry each, in the order of your preference",
            )
        if not given:
            raise fault(
                "names no capacity",
                f"write {' or '.join(Rung.model_fields)}, such as spot: {{}}",
            )
        return self

    @property
    def terms(self) -> OnDemand | Spot | FlexStart | Queued | Reservation:
        offers = (self.on_demand, self.spot, self.flex_start, self.queued, self.reservation)
        return next(offer for offer in offers if offer is not None)

    @property
    def kind(self) -> Kind:
        return self.terms.kind

    @property
    def key(self) -> str:
        """Of the terms, in the stack file."""
        return next(name for name in Rung.model_fields if getattr(self, name) is not None)


Ladder = Annotated[tuple[Rung, ...], Field(strict=False), NOT_EMPTY]
ON_DEMAND: tuple[Rung, ...] = (Rung(on_demand=OnDemand()),)
