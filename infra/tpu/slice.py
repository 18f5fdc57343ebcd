"""TpuSlice: everything that follows from one declared slice, computed here and nowhere else."""

import difflib
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from infra.errors import ConfigError, Problem
from infra.names import Name
from infra.tpu import topology as topologies
from infra.tpu.capacity import ON_DEMAND, Ladder, Rung
from infra.tpu.catalog import (
    ACCELERATOR_LABEL,
    CHIP_RESOURCE,
    CHIPS_LABEL,
    GENERATIONS,
    MACHINES,
    RAY_CHIPS_PER_HOST,
    RAY_PARTS,
    RAY_WHOLE_HOST_2D,
    REFUSED,
    TOPOLOGY_LABEL,
    Generation,
    Machine,
)
from infra.tpu.speed import SPEEDS
from workloads.contract import SliceContract
from workloads.settings import Settings

MAX_COUNT = 1000
"""Copies of a slice, each of which may be a node pool: the most that one cluster takes."""

BOOT_DISK_GIB = 300
"""By default. What GKE and images leave of it (infra.tpu.node) holds models and programs."""

Provision = Literal["node_pools", "compute_class"]


class ShapeSpec(Settings):
    """A shape, and how to ask for it."""

    machine_type: str
    topology: str
    capacity: Ladder = ON_DEMAND
    """In the order of preference. More than one entry takes a compute class."""


class SliceSpec(ShapeSpec):
    """A slice as the user declares it."""

    name: Name
    count: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1
    """Identical slices of this shape."""
    fallback: tuple[ShapeSpec, ...] = Field(default=(), strict=False)
    """Other shapes in the order of preference, each for a worker group of its own."""
    provision: Provision | None = None
    """Who makes the nodes: this stack, or GKE by a compute class. By default this stack, if it is
    one shape of one kind of capacity."""
    boot_disk_gib: Annotated[int, Field(ge=100, le=4096)] = BOOT_DISK_GIB
    """Of each host. A model of the hub is stored on it as a whole."""
    keep_nodes: bool = False
    """Whether a node pool of this stack keeps its nodes while nothing runs on them."""


@dataclass(frozen=True)
class TpuSlice:
    """`count` identical slices that exist on GKE and that Ray can reserve."""

    name: str
    """Of the worker group. A fallback's is the slice's, with generation and topology."""
    count: int
    machine: Machine
    generation: Generation
    topology: str
    capacity: tuple[Rung, ...] = ON_DEMAND
    provision: Provision = "node_pools"
    boot_disk_gib: int = BOOT_DISK_GIB
    keep_nodes: bool = False
    fallback: tuple["TpuSlice", ...] = ()

    @classmethod
    def resolve(
        cls, spec: SliceSpec, where: str = "slice", *, by_class: bool = False
    ) -> "TpuSlice":
        """Raises ConfigError for machine types or topologies that are not offered, with the reason.

        Args:
            spec: The declaration.
            where: Its place in the user's file, with which messages begin.
            by_class: Whether a compute class is the default for a single kind of capacity too.
        """
        places = [where, *(f"{where}.fallback[{i}]" for i in range(len(spec.fallback)))]
        shapes = [spec, *spec.fallback]
        if faults := [
            fault
            for shape, place in zip(shapes, places, strict=True)
            for fault in shape_faults(shape.machine_type, shape.topology, place)
        ]:
            raise ConfigError(faults)
        several = len(spec.capacity) > 1 or bool(spec.fallback)
        provision = spec.provision or ("compute_class" if several or by_class else "node_pools")
        first, *others = (_shape(spec, shape, provision) for shape in shapes)
        named = (replace(o, name=f"{o.name}-{o.generation.name}-{o.topology}") for o in others)
        return replace(first, fallback=tuple(named))

    @property
    def shapes(self) -> tuple["TpuSlice", ...]:
        """This slice and its fallbacks, in the order of preference."""
        return (self, *self.fallback)

    @property
    def chips(self) -> int:
        """Chips of one slice."""
        return topologies.chips(self.topology)

    @property
    def chips_per_host(self) -> int:
        return self.machine.chips

    @property
    def devices(self) -> int:
        """JAX devices of one slice: what meshes and batches are cut over."""
        return self.chips * self.generation.devices_per_chip

    @property
    def devices_per_host(self) -> int:
        return self.chips_per_host * self.generation.devices_per_chip

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
    def hbm_gib_per_device(self) -> int:
        return self.generation.hbm_gib_per_chip // self.generation.devices_per_chip

    @property
    def most_chips(self) -> int:
        """Of all copies in all shapes, which may be there at once while one replaces another."""
        return sum(shape.chips * shape.count for shape in self.shapes)

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
    def workload_policy(self) -> bool:
        """Whether its hosts are placed by a named workload policy."""
        return self.multi_host and self.generation.workload_policy

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
    def hosts_known_to_ray(self) -> bool:
        """Whether Ray, where it cannot be told, asks for hosts of as many chips as there are."""
        return self.chips_per_host == self.ray_chips_per_host

    @property
    def reserved_whole(self) -> bool:
        """Whether Ray Train reserves the slice by name.

        It does not for what it takes for one host: bundles then go to any host of the generation
        that has the chips free.
        """
        return self.chips > self.ray_chips_per_host

    @property
    def part_topologies(self) -> tuple[str, ...]:
        """Of connected parts that Ray can reserve, smallest first."""
        return RAY_PARTS.get(self.topology, ()) if self.multi_host else ()

    def part(self, topology: str) -> "TpuSlice":
        """The parts of this shape in all copies, as if each were a slice."""
        parts = self.chips // topologies.chips(topology)
        return replace(self, topology=topology, count=self.count * parts)

    def contract(self) -> SliceContract:
        return SliceContract(
            name=self.name,
            slices=self.count,
            generation=self.generation.name,
            machine_type=self.machine.name,
            topology=self.topology,
            hosts=self.hosts,
            chips_per_host=self.chips_per_host,
            devices_per_chip=self.generation.devices_per_chip,
            hbm_gib_per_chip=self.generation.hbm_gib_per_chip,
            bf16_tflops_per_chip=SPEEDS[self.generation.name].bf16_tflops,
            accelerator_type=self.accelerator_type,
            pod_type=self.pod_type,
        )


def _shape(spec: SliceSpec, shape: ShapeSpec, provision: Provision) -> TpuSlice:
    machine = MACHINES[_plain(shape.machine_type)]
    return TpuSlice(
        name=spec.name,
        count=spec.count,
        machine=machine,
        generation=GENERATIONS[machine.generation],
        topology=_plain(shape.topology),
        capacity=shape.capacity,
        provision=provision,
        boot_disk_gib=spec.boot_disk_gib,
        keep_nodes=spec.keep_nodes,
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
