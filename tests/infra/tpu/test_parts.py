"""Parts of slices, against the installed Ray and the places where libtpu has the chips."""

import importlib.util
from pathlib import Path

import pytest
from ray._private.accelerators.tpu import (
    _build_subslice_labels,
    _get_physical_worker_id_from_coords,
)

import infra.local
from infra.tpu.catalog import MACHINES
from infra.tpu.slice import SliceSpec, TpuSlice
from infra.tpu.topology import dimensions, topologies

# Lowest chip of each host, as libtpu's compiler lists them: jax.experimental.topologies, v6e.
FIRST_CHIPS = {
    "4x4": [(0, 0), (2, 0), (0, 2), (2, 2)],
    "4x8": [(0, 0), (2, 0), (0, 2), (2, 2), (0, 4), (2, 4), (0, 6), (2, 6)],
}
SQUARES = {
    "4x4": ["2x2", "2x4"],
    "8x8": ["2x2", "2x4", "4x4", "4x8"],
    "16x16": ["2x2", "2x4", "4x4", "4x8", "8x8", "8x16"],
}


def resolve(machine, topology, count=1):
    spec = SliceSpec(name="s", machine_type=machine, topology=topology, count=count)
    return TpuSlice.resolve(spec)


def simulated(topology, worker_id, monkeypatch):
    """What a simulated host tells Ray in libtpu's place."""
    monkeypatch.setenv("TPU_TOPOLOGY", topology)
    monkeypatch.setenv("TPU_WORKER_ID", str(worker_id))
    path = Path(infra.local.__file__).parent / "simulated" / "libtpu" / "sdk.py"
    spec = importlib.util.spec_from_file_location("simulated_sdk", path)
    assert spec
    assert spec.loader
    sdk = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sdk)
    return [chip.coordinates() for chip in sdk.slice.get_chip_coordinates()]


@pytest.mark.parametrize("topology", FIRST_CHIPS)
def test_simulated_hosts_have_their_chips_where_libtpu_has_them(topology, monkeypatch):
    hosts = [simulated(topology, i, monkeypatch) for i in range(len(FIRST_CHIPS[topology]))]
    assert [min(places) for places in hosts] == FIRST_CHIPS[topology]
    columns, rows = dimensions(topology)
    assert {place for host in hosts for place in host} == {
        (x, y) for x in range(columns) for y in range(rows)
    }


@pytest.mark.parametrize("machine", ["ct6e-standard-4t", "ct5lp-hightpu-4t"])
@pytest.mark.parametrize("topology", SQUARES)
def test_ray_finds_every_offered_part_as_a_rectangle_of_hosts(machine, topology, monkeypatch):
    tpu = resolve(machine, topology, count=2)
    assert list(tpu.part_topologies) == SQUARES[topology]
    hosts = [simulated(topology, i, monkeypatch) for i in range(tpu.hosts)]
    labels = [
        _build_subslice_labels(_get_physical_worker_id_from_coords(host, topology), topology)
        for host in hosts
    ]
    for shape in SQUARES[topology]:
        part = tpu.part(shape)
        found = {label[f"ray.io/tpu-subslice-{shape}"] for label in labels}
        assert part.count == 2 * len(found)
        assert part.chips * part.count == tpu.chips * tpu.count
        for index in found:
            chips = [
                place
                for host, label in zip(hosts, labels, strict=True)
                if label[f"ray.io/tpu-subslice-{shape}"] == index
                for place in host
            ]
            assert len(chips) == part.chips
            edges = [max(axis) - min(axis) + 1 for axis in zip(*chips, strict=True)]
            assert sorted(edges) == sorted(dimensions(shape))


def test_ray_finds_no_host_of_a_slice_that_is_no_square():
    """Why no other slice is offered in parts."""
    with pytest.raises(ValueError, match="out of bounds for parent topology '4x8'"):
        _get_physical_worker_id_from_coords([[0, 6]], "4x8")


def test_no_other_slice_has_parts():
    with_parts = {
        (machine.name, shape)
        for machine in MACHINES.values()
        for shape in topologies(machine)
        if resolve(machine.name, shape).part_topologies
    }
    assert with_parts == {
        (machine, shape)
        for machine in ("ct6e-standard-4t", "ct5lp-hightpu-4t")
        for shape in SQUARES
    }
