"""What `raytpu new` offers: each answer narrows what is legal for the next.

Whatever is chosen among these passes `raytpu check`. A stack file may say more than is asked here:
queued capacity, fallbacks, several slices.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from infra.config.cluster import region
from infra.tpu import topology as topologies
from infra.tpu.capacity import Rung
from infra.tpu.catalog import GENERATIONS, MACHINES, Generation
from infra.tpu.slice import SliceSpec, TpuSlice

Purpose = Literal["serve", "train", "cluster"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)

_REMARKS = {
    "serve": "  a model behind an OpenAI-compatible API",
    "train": "  a language model from text",
    "cluster": "  a Ray cluster to work on by hand",
    "on_demand": "  never taken back, not promised",
    "spot": "  cheaper, may be taken back",
    "flex_start": "  waits for capacity, then runs for a week at most",
    "reservation": "  bought ahead",
}

SERVED_HEADS = 32
"""Attention heads of Qwen3-4B (its config.json), cut evenly over a replica's devices."""


@dataclass(frozen=True)
class Answers:
    """In the order in which they are asked for."""

    team: str
    environment: str
    project: str
    cost_center: str
    purpose: Purpose
    machine_type: str
    topology: str
    zones: tuple[str, ...]
    capacity: tuple[str, ...]
    reservation: str | None = None
    budget: int | None = None
    """In USD a month."""

    @property
    def stack(self) -> str:
        return f"{self.team}-{self.environment}"

    @property
    def devices(self) -> int:
        """Of the slice, as JAX sees them."""
        return topologies.chips(self.topology) * self.devices_per_chip

    @property
    def devices_per_chip(self) -> int:
        return _generation(self.machine_type).devices_per_chip

    @property
    def location(self) -> str:
        return region(self.zones[0])


def remark(flag: str, offer: str) -> str:
    """What is worth knowing of an offer while choosing."""
    if flag == "machine-type":
        machine = MACHINES[offer]
        memory = machine.chips * GENERATIONS[machine.generation].hbm_gib_per_chip
        return f"  {machine.generation}, {_chips(machine.chips)}, {memory} GiB of HBM"
    if flag == "topology":
        return f"  {_chips(topologies.chips(offer))}"
    return _REMARKS.get(offer, "")


def _chips(number: int) -> str:
    return f"{number} chip{'s' if number > 1 else ''}"


def machine_types() -> tuple[str, ...]:
    return tuple(MACHINES)


def shapes(machine_type: str, purpose: str) -> tuple[str, ...]:
    """Topologies. A program trains on any; for a replica, those that Ray Serve can ask for."""
    legal = topologies.topologies(MACHINES[machine_type])
    return tuple(one for one in legal if purpose != "serve" or _servable(machine_type, one))


def _servable(machine_type: str, topology: str) -> bool:
    """Whether Ray Serve can ask for its hosts, and the model's heads are cut evenly."""
    tpu = TpuSlice.resolve(SliceSpec(name="offer", machine_type=machine_type, topology=topology))
    return tpu.hosts_known_to_ray and SERVED_HEADS % tpu.devices == 0


def zones(machine_type: str) -> tuple[str, ...]:
    return _generation(machine_type).zones


def capacity(machine_type: str, chosen_zones: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds, as a stack file spells them. Queued capacity needs Kueue, which no stack installs."""
    generation = _generation(machine_type)
    flex_zones = generation.flex_start_zones or generation.zones
    kinds = [kind for kind in Rung.model_fields if kind != "queued"]
    if not generation.flex_start or not {*chosen_zones} & {*flex_zones}:
        kinds.remove("flex_start")
    return tuple(kinds)


def _generation(machine_type: str) -> Generation:
    return GENERATIONS[MACHINES[machine_type].generation]
