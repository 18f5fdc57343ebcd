"""How long a step takes at best: a roofline of what the compiled program does.

The longest of computing, reading memory and talking; as if each overlapped the others whole and
ran at its peak. A real step takes longer, so its utilisation is lower.

Where a chip is two devices, each is taken to have half of its peaks: of products and HBM that is
so, of the links it is an estimate, since the two share them, and are linked within the chip too.
"""

from dataclasses import dataclass

from infra.tpu.slice import TpuSlice
from infra.tpu.speed import SPEEDS, Speed
from workloads.preflight.program import Collective, Measured

# Of the payload, what a device takes in where a ring of so many carries it.
_PASSES = {
    "all-reduce": 2,
    "all-gather": 1,
    "reduce-scatter": 1,
    "all-to-all": 1,
    "dcn": 2,  # an all-reduce between the slices
}


@dataclass(frozen=True)
class Estimate:
    compute_s: float
    hbm_s: float
    ici_s: float
    dcn_s: float | None
    """None if the speed of that network is not known, and the step needs it."""

    @property
    def step_s(self) -> float:
        return max(self._parts.values())

    @property
    def bound_by(self) -> str:
        return max(self._parts, key=lambda name: self._parts[name])

    @property
    def utilisation(self) -> float:
        """Of the chip's peak on matrix products, if the step takes no longer than this."""
        return self.compute_s / self.step_s if self.step_s else 0.0

    @property
    def _parts(self) -> dict[str, float]:
        return {
            "compute": self.compute_s,
            "HBM": self.hbm_s,
            "ICI": self.ici_s,
            "network": self.dcn_s or 0.0,
        }


def estimate(measured: Measured, tpu: TpuSlice) -> Estimate | None:
    """Of a program on one device of a slice. None if it was not compiled."""
    if measured.flops is None or measured.traffic_bytes is None:
        return None
    inside = [one for one in measured.collectives if one.kind != "dcn"]
    between = sum(_carried(one) for one in measured.collectives if one.kind == "dcn")
    speed, sharing = SPEEDS[tpu.generation.name], tpu.generation.devices_per_chip
    dcn = speed.dcn_bytes_per_s
    return Estimate(
        compute_s=sharing * measured.flops / speed.flops_per_s,
        hbm_s=sharing * measured.traffic_bytes / speed.hbm_bytes_per_s,
        ici_s=sharing * sum(_carried(one) / _rate(one, speed, tpu.devices) for one in inside),
        dcn_s=0.0 if not between else None if dcn is None else sharing * between / dcn,
    )


def _carried(one: Collective) -> float:
    if one.kind == "collective-permute":
        return one.payload_bytes
    return _PASSES[one.kind] * one.payload_bytes * (one.group - 1) / one.group


def _rate(one: Collective, speed: Speed, devices_per_slice: int) -> float:
    """A group that is the whole slice uses the links of all axes, any other those of one."""
    axes = speed.ici_axes if one.group == devices_per_slice else 1
    return axes * speed.axis_bytes_per_s
