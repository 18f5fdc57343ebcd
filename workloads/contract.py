"""What a workload is told about its slice. Standard library only: every layer can import it.

The facts are resolved once, by `infra.tpu.slice.TpuSlice`; a workload never derives a host count
from a topology, because accelerator and topology alone do not decide it (a v6e 2x4 is one 8-chip
VM or two 4-chip VMs).
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import get_type_hints


@dataclass(frozen=True)
class SliceContract:
    """`slices` identical slices of `hosts` VMs each, with `chips_per_host` chips a VM."""

    name: str
    slices: int
    generation: str
    """The generation's short name, e.g. "v6e"."""
    machine_type: str
    topology: str
    hosts: int
    """VMs of one slice."""
    chips_per_host: int
    devices_per_chip: int
    """As JAX sees a chip. Meshes and batches count devices; Ray and peaks count chips."""
    hbm_gib_per_chip: int
    bf16_tflops_per_chip: int
    """The peak of matrix products, in 10^12 operations a second."""
    accelerator_type: str
    """Ray's name, e.g. "TPU-V6E"."""
    pod_type: str
    """Ray's name for the shape, e.g. "v6e-16"."""

    @property
    def workers(self) -> int:
        """Ray workers (one a host) of all slices."""
        return self.hosts * self.slices

    @property
    def chips(self) -> int:
        """Of all slices."""
        return self.workers * self.chips_per_host

    @property
    def devices(self) -> int:
        """Of all slices: as many as JAX sees."""
        return self.chips * self.devices_per_chip

    @property
    def devices_per_slice(self) -> int:
        return self.hosts * self.devices_per_host

    @property
    def devices_per_host(self) -> int:
        return self.chips_per_host * self.devices_per_chip

    @property
    def peak_flops_per_s(self) -> float:
        """Of all slices."""
        return self.chips * self.bf16_tflops_per_chip * 1e12

    @property
    def multi_host(self) -> bool:
        return self.hosts > 1

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "SliceContract":
        """Raises ValueError that names the missing, unknown or mistyped fields."""
        try:
            raw = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"slice contract is not JSON: {error}") from None
        if not isinstance(raw, dict):
            raise ValueError(f"slice contract is a JSON object, not {type(raw).__name__}")
        types = get_type_hints(cls)
        faults = [f"missing {name!r}" for name in types if name not in raw]
        faults += [f"unknown {name!r}" for name in raw if name not in types]
        faults += [
            f"{name!r} is {raw[name]!r}, not {kind.__name__}"
            for name, kind in types.items()
            if name in raw and type(raw[name]) is not kind
        ]
        if faults:
            raise ValueError(f"slice contract: {', '.join(faults)}")
        return cls(**raw)


def told_devices(devices: int, devices_per_chip: int) -> str:
    """So many devices in a message: as chips, where a chip is one."""
    text = f"{devices} {device_noun(devices_per_chip)}{'' if devices == 1 else 's'}"
    if devices_per_chip == 1:
        return text
    return f"{text} ({devices // devices_per_chip} chips of {devices_per_chip})"


def device_noun(devices_per_chip: int) -> str:
    return "chip" if devices_per_chip == 1 else "device"
