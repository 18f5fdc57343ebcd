"""Meshes over the chips of real slices, as libtpu describes them without a TPU."""

from itertools import product

import pytest

from infra.tpu.slice import SliceSpec, TpuSlice
from workloads.model import sharding
from workloads.preflight.compile import topology_devices
from workloads.preflight.program import Chips
from workloads.settings import TrainMesh

SLICES = [
    ("ct4p-hightpu-4t", "2x2x4"),
    ("ct5lp-hightpu-4t", "4x4"),
    ("ct5p-hightpu-4t", "2x4x4"),
    ("ct6e-standard-4t", "4x8"),
    ("ct6e-standard-8t", "2x4"),
    ("tpu7x-standard-4t", "2x2x2"),
]


def meshes(devices):
    sizes = [size for size in range(1, devices + 1) if devices % size == 0]
    for data, fsdp in product(sizes, repeat=2):
        if devices % (data * fsdp) == 0:
            yield TrainMesh(data=data, fsdp=fsdp, tensor=devices // (data * fsdp))


def distance(one, other, topology):
    """Links between two chips, around the edge too where that is shorter."""
    edges = [int(edge) for edge in topology.split("x")]
    apart = [abs(a - b) for a, b in zip(one.coords, other.coords, strict=True)]
    # libtpu may count the axes of a 2-D slice the other way round.
    return min(
        sum(min(a, edge - a) for a, edge in zip(apart, order, strict=False))
        for order in (edges, edges[::-1])
    )


@pytest.mark.parametrize(("machine_type", "topology"), SLICES)
def test_every_mesh_of_a_slice_can_be_laid_over_its_chips(machine_type, topology):
    """An axis may be a part of one of the slice, as data 4 x fsdp 4 x tensor 2 of a v6e 4x8."""
    spec = SliceSpec(name="train", machine_type=machine_type, topology=topology)
    tpu = TpuSlice.resolve(spec)
    chips = Chips(
        generation=tpu.generation.name,
        topology=topology,
        host_topology=tpu.machine.host_topology,
        slices=1,
        devices=tpu.devices,
        hbm_gib_per_device=1,
    )
    devices = topology_devices(chips)
    for mesh in meshes(tpu.devices):
        laid = sharding.make_mesh(mesh, devices).devices
        assert laid.shape == (mesh.data, mesh.fsdp, mesh.tensor)
        assert set(laid.flat) == set(devices)
        if mesh.tensor == 2:  # these two talk most
            pairs = laid.reshape(-1, 2)
            assert {distance(a, b, topology) for a, b in pairs} <= {0, 1}, mesh
