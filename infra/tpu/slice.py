"""TpuSlice: everything that follows from one declared slice, computed here and nowhere else."""

import difflib
from dataclasses import dataclass

from infra.errors import ConfigError, Problem
from infra.names import Name
from infra.tpu import topology as topologies
from infra.tpu.catalog import (
    ACCELERATOR_LABEL,
    CHIP_RESOURCE,
    CHIPS_LABEL,
    GENERATIONS,
    MACHINES,
    RAY_CHIPS_PER_HOST,
    RAY_WHOLE_HOST_2D,
    REFUSED,
    TOPOLOGY_LABEL,
    Generation,
    Machine,
)
from workloads.contract import SliceContract
from workloads.settings import PositiveInt, Settings


class SliceSpec(Settings):
    """A slice as the user declares it."""

    name: Name
    machine_type: str
    topology: str
    count: PositiveInt = 1
    """Identical slices of this shape."""


@dataclass(frozen=True)
class TpuSlice:
    """`count` identical slices that exist on GKE and that Ray can reserve."""

    name: str
    count: int
    machine: Machine
    generation: Generation
    topology: str

    @classmethod
    def resolve(cls, spec: SliceSpec, where: str = "slice") -> "TpuSlice":
        """Raises ConfigError for a machine type or topology that is not offered, with the reason.

        Args:
            spec: The declaration.
            where: Its place in the user's file, with which messages begin.
        """
        if faults := shape_faults(spec.machine_type, spec.topology, where):
            raise ConfigError(faults)
        machine = MACHINES[_plain(spec.machine_type)]
        generation = GENERATIONS[machine.generation]
        return cls(spec.name, spec.count, machine, generation, _plain(spec.topology))

    @property
    def chips(self) -> int:
        """Chips of one slice."""
        return topologies.chips(self.topology)

    @property
    def chips_per_host(self) -> int:
        return self.machine.chips

    @property
    def hosts(self) -> int:
        """VMs of one slice."""
        return self.chips // self.chips_per_host

    @property
    def multi_host(self) -> bool:
        return self.hosts > 1

    @property
    def workers(self) -> int:
        """Ray workers of all slices, one a VM. A program over all slices has exactly so many."""
        return self.hosts * self.count

    @property
    def hbm_gib(self) -> int:
        """HBM of one slice."""
        return self.chips * self.generation.hbm_gib_per_chip

    @property
    def pools(self) -> tuple[int, ...]:
        """Nodes of each node pool.

        In GKE a pool holds one multi-host slice, or any number of single-host ones: each of its
        nodes is then a slice of its own.
        """
        return (self.hosts,) * self.count if self.multi_host else (self.count,)

    @property
    def placement_topology(self) -> str | None:
        """Topology of a pool's placement policy. GKE refuses one on a single-host pool."""
        return self.topology if self.multi_host else None

    @property
    def node_selector(self) -> dict[str, str]:
        """Labels of the nodes. The chip count tells a one-VM 2x4 from a two-VM 2x4."""
        return {
            ACCELERATOR_LABEL: self.generation.gke_accelerator,
            TOPOLOGY_LABEL: self.topology,
            CHIPS_LABEL: str(self.chips_per_host),
        }

    @property
    def chip_request(self) -> dict[str, str]:
        """What the pod of a host requests: GKE wants all chips of a node in one pod."""
        return {CHIP_RESOURCE: str(self.chips_per_host)}

    @property
    def accelerator_type(self) -> str:
        return f"TPU-{self.generation.ray_version.upper()}"

    @property
    def pod_type(self) -> str:
        """Ray's name for the shape: v4, v5p and tpu7x count TensorCores, v5e and v6e chips."""
        return f"{self.generation.ray_version}-{self.chips * self.generation.cores_per_chip}"

    @property
    def head_resource(self) -> str:
        """Ray's resource on host 0 of a slice, by which the whole slice is reserved."""
        return f"TPU-{self.pod_type}-head"

    @property
    def ray_labels(self) -> dict[str, str]:
        """Labels that Ray gives each host of such a slice, apart from its name and number."""
        return {
            "ray.io/accelerator-type": self.accelerator_type,
            "ray.io/tpu-topology": self.topology,
            "ray.io/tpu-pod-type": self.pod_type,
        }

    @property
    def ray_chips_per_host(self) -> int:
        """The chips a host that Ray assumes where its API cannot be told."""
        return self.chips if self.topology in RAY_WHOLE_HOST_2D else RAY_CHIPS_PER_HOST

    @property
    def reserved_whole(self) -> bool:
        """Whether Ray Train reserves the slice by name.

        It does not for what it takes for one host: bundles then go to any host of the generation
        that has the chips free.
        """
        return self.chips > self.ray_chips_per_host

    def contract(self) -> SliceContract:
        return SliceContract(
            name=self.name,
            slices=self.count,
            generation=self.generation.name,
            machine_type=self.machine.name,
            topology=self.topology,
            hosts=self.hosts,
            chips_per_host=self.chips_per_host,
            hbm_gib_per_chip=self.generation.hbm_gib_per_chip,
            accelerator_type=self.accelerator_type,
            pod_type=self.pod_type,
        )


def shape_faults(machine_type: str, topology: str, where: str) -> list[Problem]:
    """What keeps the two from being a slice.

    A topology is judged by its machine type; without one, only whether it is one at all.
    """
    name = _plain(machine_type)
    place = f"{where}.topology"
    if name not in MACHINES:
        faults = [_unknown_machine(machine_type, f"{where}.machine_type")]
        if not topologies.well_formed(topology):
            fix = "write one such as 4x4 or 2x2x2"
            faults.append(Problem.of(place, topology, "is not a topology", fix))
        return faults
    machine = MACHINES[name]
    if topologies.is_legal(machine, topology):
        return []
    what, fix = topologies.refusal(machine, topology)
    return [Problem.of(place, topology, what, fix)]


def _plain(text: str) -> str:
    """Case and outer spaces of what the user writes do not matter."""
    return text.strip().lower()


def _unknown_machine(text: str, where: str) -> Problem:
    name = _plain(text)
    if refused := REFUSED.get(name):
        return Problem.of(where, text, f"is not offered: {refused.reason}", f"use {refused.use}")
    close = difflib.get_close_matches(name, [*MACHINES, *REFUSED], cutoff=0.8)
    offered = [machine for machine in close if machine in MACHINES]
    if offered:
        return Problem.of(where, text, "is no TPU machine type", f"did you mean {offered[0]}?")
    known = [machine.name for machine in MACHINES.values() if name in _names(machine)] or MACHINES
    return Problem.of(where, text, "is no TPU machine type", f"use one of {', '.join(known)}")


def _names(machine: Machine) -> tuple[str, ...]:
    """Names of the machine's generation that are taken for a machine type."""
    generation = GENERATIONS[machine.generation]
    version = generation.ray_version
    return generation.name, generation.gke_accelerator, version, f"tpu-{version}"
