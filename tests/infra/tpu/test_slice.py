"""What each slice resolves to, against a hand-written table from Google's documents and Ray's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.tpu.catalog import MACHINES
from infra.tpu.slice import SliceSpec, TpuSlice
from infra.tpu.topology import topologies
from workloads.contract import SliceContract

# machine type, topology: hosts, chips, HBM GiB of a slice, GKE's accelerator label, Ray's pod type
SLICES = """
ct4p-hightpu-4t    2x2x1        1     4     128  tpu-v4-podslice       v4-8
ct4p-hightpu-4t    2x2x2        2     8     256  tpu-v4-podslice       v4-16
ct4p-hightpu-4t    2x2x4        4    16     512  tpu-v4-podslice       v4-32
ct4p-hightpu-4t    2x4x4        8    32    1024  tpu-v4-podslice       v4-64
ct4p-hightpu-4t    4x4x4       16    64    2048  tpu-v4-podslice       v4-128
ct4p-hightpu-4t    4x4x8       32   128    4096  tpu-v4-podslice       v4-256
ct4p-hightpu-4t    4x8x12      96   384   12288  tpu-v4-podslice       v4-768
ct4p-hightpu-4t    12x12x16   576  2304   73728  tpu-v4-podslice       v4-4608
ct5lp-hightpu-1t   1x1          1     1      16  tpu-v5-lite-podslice  v5litepod-1
ct5lp-hightpu-4t   2x2          1     4      64  tpu-v5-lite-podslice  v5litepod-4
ct5lp-hightpu-4t   2x4          2     8     128  tpu-v5-lite-podslice  v5litepod-8
ct5lp-hightpu-8t   2x4          1     8     128  tpu-v5-lite-podslice  v5litepod-8
ct5lp-hightpu-4t   4x4          4    16     256  tpu-v5-lite-podslice  v5litepod-16
ct5lp-hightpu-4t   4x8          8    32     512  tpu-v5-lite-podslice  v5litepod-32
ct5lp-hightpu-4t   8x8         16    64    1024  tpu-v5-lite-podslice  v5litepod-64
ct5lp-hightpu-4t   8x16        32   128    2048  tpu-v5-lite-podslice  v5litepod-128
ct5lp-hightpu-4t   16x16       64   256    4096  tpu-v5-lite-podslice  v5litepod-256
ct5p-hightpu-4t    2x2x1        1     4     380  tpu-v5p-slice         v5p-8
ct5p-hightpu-4t    2x2x2        2     8     760  tpu-v5p-slice         v5p-16
ct5p-hightpu-4t    2x2x4        4    16    1520  tpu-v5p-slice         v5p-32
ct5p-hightpu-4t    2x4x4        8    32    3040  tpu-v5p-slice         v5p-64
ct5p-hightpu-4t    4x4x4       16    64    6080  tpu-v5p-slice         v5p-128
ct5p-hightpu-4t    4x4x8       32   128   12160  tpu-v5p-slice         v5p-256
ct5p-hightpu-4t    4x4x24      96   384   36480  tpu-v5p-slice         v5p-768
ct5p-hightpu-4t    8x8x8      128   512   48640  tpu-v5p-slice         v5p-1024
ct5p-hightpu-4t    16x16x24  1536  6144  583680  tpu-v5p-slice         v5p-12288
ct6e-standard-1t   1x1          1     1      32  tpu-v6e-slice         v6e-1
ct6e-standard-4t   2x2          1     4     128  tpu-v6e-slice         v6e-4
ct6e-standard-4t   2x4          2     8     256  tpu-v6e-slice         v6e-8
ct6e-standard-8t   2x4          1     8     256  tpu-v6e-slice         v6e-8
ct6e-standard-4t   4x4          4    16     512  tpu-v6e-slice         v6e-16
ct6e-standard-4t   4x8          8    32    1024  tpu-v6e-slice         v6e-32
ct6e-standard-4t   8x8         16    64    2048  tpu-v6e-slice         v6e-64
ct6e-standard-4t   8x16        32   128    4096  tpu-v6e-slice         v6e-128
ct6e-standard-4t   16x16       64   256    8192  tpu-v6e-slice         v6e-256
tpu7x-standard-4t  2x2x1        1     4     768  tpu7x                 v7x-8
tpu7x-standard-4t  2x2x2        2     8    1536  tpu7x                 v7x-16
tpu7x-standard-4t  2x2x4        4    16    3072  tpu7x                 v7x-32
tpu7x-standard-4t  2x4x4        8    32    6144  tpu7x                 v7x-64
tpu7x-standard-4t  4x4x4       16    64   12288  tpu7x                 v7x-128
tpu7x-standard-4t  4x4x8       32   128   24576  tpu7x                 v7x-256
tpu7x-standard-4t  4x8x8       64   256   49152  tpu7x                 v7x-512
tpu7x-standard-4t  8x8x8      128   512   98304  tpu7x                 v7x-1024
tpu7x-standard-4t  8x8x16     256  1024  196608  tpu7x                 v7x-2048
tpu7x-standard-4t  8x16x16    512  2048  393216  tpu7x                 v7x-4096
tpu7x-ultranet-4t  2x2x1        1     4     768  tpu7x                 v7x-8
tpu7x-ultranet-4t  2x2x2        2     8    1536  tpu7x                 v7x-16
"""
ROWS = [line.split() for line in SLICES.strip().splitlines()]
LEGAL = [(machine.name, shape) for machine in MACHINES.values() for shape in topologies(machine)]


def resolve(machine, topology, count=1):
    spec = SliceSpec(name="s", machine_type=machine, topology=topology, count=count)
    return TpuSlice.resolve(spec)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_slice_resolves_to_what_google_and_ray_document(row):
    machine, topology, hosts, chips, hbm_gib, label, pod_type = row
    tpu = resolve(machine, topology)
    assert (tpu.hosts, tpu.chips, tpu.hbm_gib) == (int(hosts), int(chips), int(hbm_gib))
    assert tpu.node_selector == {
        "cloud.google.com/gke-tpu-accelerator": label,
        "cloud.google.com/gke-tpu-topology": topology,
        "cloud.google.com/gke-accelerator-count": machine[-2],
    }
    assert tpu.chip_request == {"google.com/tpu": machine[-2]}
    assert tpu.pod_type == pod_type
    assert tpu.accelerator_type == "TPU-" + pod_type.partition("-")[0].upper()
    assert tpu.head_resource == f"TPU-{pod_type}-head"


# machine type, topology: chips, JAX devices, devices of a host, HBM GiB of a device
DEVICES = """
ct4p-hightpu-4t    2x2x1    4   4  4  32
ct4p-hightpu-4t    2x4x4   32  32  4  32
ct5lp-hightpu-1t   1x1      1   1  1  16
ct5lp-hightpu-8t   2x4      8   8  8  16
ct5lp-hightpu-4t   4x4     16  16  4  16
ct5p-hightpu-4t    2x2x1    4   4  4  95
ct5p-hightpu-4t    2x2x4   16  16  4  95
ct6e-standard-1t   1x1      1   1  1  32
ct6e-standard-4t   4x4     16  16  4  32
ct6e-standard-8t   2x4      8   8  8  32
tpu7x-standard-4t  2x2x1    4   8  8  96
tpu7x-standard-4t  2x2x2    8  16  8  96
tpu7x-standard-4t  4x4x4   64 128  8  96
tpu7x-ultranet-4t  2x2x4   16  32  8  96
"""


@pytest.mark.parametrize("row", DEVICES.strip().splitlines(), ids=lambda row: row.split()[0])
def test_a_mesh_counts_what_jax_sees_of_the_chips(row):
    machine, topology, *numbers = row.split()
    tpu = resolve(machine, topology)
    found = (tpu.chips, tpu.devices, tpu.devices_per_host, tpu.hbm_gib_per_device)
    assert found == tuple(map(int, numbers))


def test_the_table_covers_every_machine_type():
    assert {row[0] for row in ROWS} == set(MACHINES)
    assert {row.split()[0] for row in DEVICES.strip().splitlines()} == set(MACHINES)


def test_case_and_outer_spaces_of_a_declaration_do_not_matter():
    assert (
        resolve(" CT6E-standard-4t ", " 4X4 ").contract()
        == resolve("ct6e-standard-4t", "4x4").contract()
    )


def test_a_multi_host_slice_is_a_pool_of_its_own_and_single_hosts_share_one():
    assert resolve("ct6e-standard-4t", "4x4", count=3).pools == (4, 4, 4)
    assert resolve("ct6e-standard-4t", "2x2", count=3).pools == (3,)
    assert resolve("ct6e-standard-8t", "2x4").pools == (1,)
    assert resolve("ct6e-standard-4t", "2x4").pools == (2,)


@pytest.mark.parametrize(
    ("machine", "topology", "placement"),
    [
        ("ct6e-standard-8t", "2x4", None),
        ("ct6e-standard-1t", "1x1", None),
        ("ct4p-hightpu-4t", "2x2x1", None),
        ("ct6e-standard-4t", "2x4", "2x4"),
        ("tpu7x-standard-4t", "2x2x2", "2x2x2"),
    ],
)
def test_only_a_multi_host_pool_has_a_topology_in_its_placement(machine, topology, placement):
    tpu = resolve(machine, topology)
    assert tpu.placement_topology == placement
    assert tpu.node_selector["cloud.google.com/gke-tpu-topology"] == topology


def test_one_vm_and_two_vms_of_2x4_differ_in_their_node_selector():
    one, two = resolve("ct6e-standard-8t", "2x4"), resolve("ct6e-standard-4t", "2x4")
    differing = {
        key for key in one.node_selector if one.node_selector[key] != two.node_selector[key]
    }
    assert differing == {"cloud.google.com/gke-accelerator-count"}


@pytest.mark.parametrize("machine", ["ct5lp-hightpu-1t", "ct6e-standard-1t"])
def test_a_single_chip_is_a_slice(machine):
    tpu = resolve(machine, "1x1")
    assert (tpu.hosts, tpu.chips_per_host, tpu.placement_topology) == (1, 1, None)


@given(st.sampled_from(LEGAL), st.integers(1, 50))
def test_hosts_chips_and_pools_always_add_up(shape, count):
    tpu = resolve(*shape, count=count)
    product = 1
    for size in shape[1].split("x"):
        product *= int(size)
    assert tpu.hosts * tpu.chips_per_host == tpu.chips == product
    assert sum(tpu.pools) == tpu.workers == tpu.hosts * count
    assert tpu.multi_host == (tpu.hosts > 1)


@given(st.sampled_from(LEGAL), st.integers(1, 50))
def test_a_workload_is_told_the_same_slice(shape, count):
    tpu = resolve(*shape, count=count)
    told = SliceContract.from_json(tpu.contract().to_json())
    assert told == tpu.contract()
    assert (told.workers, told.chips) == (tpu.workers, tpu.chips * count)
    assert (told.devices_per_host, told.devices_per_slice, told.devices) == (
        tpu.devices_per_host,
        tpu.devices,
        tpu.devices * count,
    )
    assert (told.topology, told.machine_type) == (tpu.topology, tpu.machine.name)
