"""List prices in USD, and price lists of one's own, which come first.

What no list has is unknown: it is never guessed from another zone, kind or generation. Flex-start
and reservations have no public list price, so only a list of one's own can name one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from infra.config.parse import Scope, parse
from infra.config.stackfile import read_yaml
from infra.names import NOT_EMPTY, fault, matching
from infra.tpu.capacity import Zone
from infra.tpu.catalog import GENERATIONS
from workloads.settings import Settings


def _checked_generation(name: str) -> str:
    if name not in GENERATIONS:
        raise fault("is no generation of TPU", f"use one of {', '.join(GENERATIONS)}")
    return name


Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Day = Annotated[str, matching(r"\d{4}-\d{2}-\d{2}", "is no date", "write one such as 2026-09-11")]


class ChipPrice(Settings):
    """USD a chip-hour, by kind of capacity as a stack file spells them."""

    generation: Annotated[str, AfterValidator(_checked_generation)]
    zones: Annotated[tuple[Zone, ...], NOT_EMPTY] | None = Field(default=None, strict=False)
    """By default all."""
    on_demand: Usd | None = None
    spot: Usd | None = None
    flex_start: Usd | None = None
    queued: Usd | None = None
    reservation: Usd | None = None


class MachinePrice(Settings):
    """Of machines without TPU."""

    family: str
    """The machine type without its number of vCPUs, such as n2-standard."""
    regions: Annotated[tuple[str, ...], NOT_EMPTY] | None = Field(default=None, strict=False)
    """By default all."""
    vcpu: Usd
    """USD an hour for a vCPU with the memory that comes with it."""


class PriceList(Settings):
    """Prices of one source. Rows that are listed first win."""

    source: str
    date: Day
    """On which it was read."""
    confidence: Literal["high", "medium", "low"] = "high"
    chips: tuple[ChipPrice, ...] = Field(default=(), strict=False)
    machines: tuple[MachinePrice, ...] = Field(default=(), strict=False)
    cluster: Usd | None = None
    """USD an hour for GKE's management of one cluster."""


@dataclass(frozen=True)
class Price:
    usd_per_hour: float
    origin: PriceList


@dataclass(frozen=True)
class Prices:
    lists: tuple[PriceList, ...]
    """The first that knows a price says it."""

    def chip(self, generation: str, kind: str, zone: str | None) -> Price | None:
        """Of one chip for an hour.

        Args:
            generation: As the catalogue names it.
            kind: Of capacity, as a stack file spells it.
            zone: None if it is not known.
        """
        return _first(
            (getattr(row, kind), one)
            for one in self.lists
            for row in one.chips
            if row.generation == generation and (row.zones is None or zone in row.zones)
        )

    def machine(self, machine_type: str, region: str) -> Price | None:
        """Of one machine without TPU for an hour."""
        family, _, vcpus = machine_type.rpartition("-")
        return _first(
            (row.vcpu * int(vcpus), one)
            for one in self.lists
            for row in one.machines
            if row.family == family and (row.regions is None or region in row.regions)
        )

    def cluster(self) -> Price | None:
        return _first((one.cluster, one) for one in self.lists)


def _first(found: Iterable[tuple[float | None, PriceList]]) -> Price | None:
    return next((Price(usd, origin) for usd, origin in found if usd is not None), None)


def with_own(path: Path) -> Prices:
    """Those of a file before the public ones. Raises ConfigError or UnreadableError."""
    own = parse(PriceList, read_yaml(path), f"{path}:", Scope(hidden=False), "a price list")
    return Prices((own, *PUBLIC.lists))


def _chips(generation: str, zones: str, on_demand: float, spot: float | None) -> dict[str, Any]:
    return {
        "generation": generation,
        "zones": tuple(zones.split()),
        "on_demand": on_demand,
        "spot": spot,
    }


# A zone that is named here is one for which a price is listed, not one where GKE sells it.
# On demand agrees with the constants of GKE's own autoscaler (7d25050); spot moves monthly.
_CHIPS = (
    _chips("v4", "us-central2-b", 3.22, 0.9215),
    _chips("v5e", "us-central1-a us-east1-b us-east1-c us-west1-c", 1.2, 0.245),
    _chips("v5e", "us-east4-b us-east5-a us-east5-b us-east5-c", 1.2, 0.6),
    _chips("v5e", "us-west4-a us-west4-b", 1.2, 0.48),
    _chips("v5e", "us-south1-a us-south1-b", 1.416, 0.566),
    _chips("v5e", "europe-west4-a europe-west4-b", 1.56, 0.405),
    _chips("v5e", "asia-northeast1-b", 1.541, 0.472),
    _chips("v5e", "asia-southeast1-b", 1.56, 0.78),
    _chips("v5e", "europe-west1-b europe-west1-c", 1.321, 0.529),
    _chips("v5p", "us-central1-a us-east1-d", 4.2, 0.929),
    _chips("v5p", "us-east5-a us-east5-b us-east5-c", 4.2, 1.68),
    _chips("v5p", "europe-west4-b", 4.2525, 1.348),
    _chips("v5p", "europe-west1-b europe-west1-d", 4.459, 1.784),
    _chips("v5p", "us-south1-a us-south1-b us-south1-c", 4.779, 1.462),
    _chips("v6e", "us-central1-a us-central1-b us-central1-c us-east1-d us-west1-c", 2.7, 0.573),
    _chips("v6e", "us-east5-a us-east5-b us-east5-c us-south1-a us-south1-c", 2.7, 1.35),
    _chips("v6e", "us-east4-a", 2.7, 0.642),
    _chips("v6e", "southamerica-west1-a", 2.7, None),
    _chips("v6e", "europe-west4-a", 2.97, 1.037),
    _chips("v6e", "asia-southeast1-b", 2.97, 0.403),
    _chips("v6e", "asia-northeast1-b", 3.24, 0.858),
    _chips("v6e", "asia-south1-b asia-south1-c", 3.24, 2.27),
)
# What the list has for n2-highcpu-96 and n2-highmem-128 gives the price of a vCPU and of a GiB; a
# vCPU of n2-standard is one with 4 GiB. In us-central1 both are those of kubernetes/autoscaler.
_N2_STANDARD = {
    "us-central1": 0.048559,
    "us-east1": 0.048559,
    "us-east4": 0.054689,
    "us-east5": 0.048559,
    "us-south1": 0.0573,
    "us-west1": 0.048559,
    "us-west4": 0.054687,
    "europe-west1": 0.053417,
    "europe-west4": 0.053458,
    "southamerica-west1": 0.069439,
}

PUBLIC = Prices(
    (
        PriceList(
            source="skypilot-catalog 8427bbf, read from Google's Cloud Billing Catalog by script",
            date="2026-09-11",
            confidence="medium",
            chips=tuple(ChipPrice(**row) for row in _CHIPS),
        ),
        PriceList(
            source="skypilot-catalog 006059e, as above, a later version",
            date="2026-11-30",
            confidence="medium",
            chips=(ChipPrice(**_chips("v6e", "us-south1-ai1b", 2.7, 1.35)),),
            machines=tuple(
                MachinePrice(family="n2-standard", regions=(region,), vcpu=usd)
                for region, usd in _N2_STANDARD.items()
            ),
        ),
        PriceList(
            source="unit test of a third party: 48 USD an hour for 4 chips",
            date="2026-09-11",
            confidence="low",
            chips=(
                ChipPrice(generation="tpu7x", zones=("us-central1-c",), on_demand=12.0),
                ChipPrice(generation="tpu7x", zones=("us-central1-ai1a",), on_demand=12.0),
            ),
        ),
        PriceList(
            source="Google, GKE pricing: 0.10 USD an hour for each cluster, of any mode",
            date="2026-11-30",
            cluster=0.10,
        ),
    )
)
