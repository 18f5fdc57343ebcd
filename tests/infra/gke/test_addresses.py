"""Address ranges hold every node and pod that a stack can bring about, and lie apart."""

from ipaddress import IPv4Network
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.gke.addresses import NetworkSettings, faults, needs, pod_block, ranges
from infra.tpu.catalog import MACHINES
from infra.tpu.slice import SliceSpec, TpuSlice
from infra.tpu.topology import topologies

NONE = NetworkSettings()


def slice_of(machine, topology, **more):
    spec = {"name": "any", "machine_type": machine, "topology": topology, **more}
    return TpuSlice.resolve(SliceSpec.model_validate(spec))


_SLICES = st.lists(
    st.sampled_from([(m.name, t) for m in MACHINES.values() for t in topologies(m)]).flatmap(
        lambda shape: st.builds(lambda count: slice_of(*shape, count=count), st.integers(1, 50))
    ),
    max_size=3,
)


@pytest.mark.parametrize(
    ("pods", "addresses"),
    # GKE's own table: /28, /27, /26, /25, /24, /24 and /23 a node.
    [(8, 16), (16, 32), (32, 64), (64, 128), (110, 256), (128, 256), (256, 512)],
)
def test_a_node_takes_the_block_of_gkes_table(pods, addresses):
    assert pod_block(pods) == addresses


@pytest.mark.parametrize(
    ("slices", "cpu_nodes", "nodes", "pods"),
    [
        # (cpu + 1) + hosts + pools + 4; (cpu + 1) x 256 + (hosts + pools) x 64
        ([], 4, 9, 1280),
        ([("ct6e-standard-8t", "2x4", 1)], 4, 11, 1408),
        ([("ct6e-standard-8t", "2x4", 3)], 4, 13, 1536),  # one pool of three
        ([("ct6e-standard-4t", "4x8", 2)], 8, 9 + 16 + 2 + 4, 9 * 256 + 18 * 64),  # two of eight
        ([("ct5p-hightpu-4t", "8x8x16", 1)], 1, 2 + 256 + 1 + 4, 2 * 256 + 257 * 64),
    ],
)
def test_needs_are_those_counted_by_hand(slices, cpu_nodes, nodes, pods):
    found = needs([slice_of(m, t, count=count) for m, t, count in slices], cpu_nodes)
    assert (found.nodes, found.pods) == (nodes, pods)


def test_both_shapes_of_a_slice_may_have_hosts_at_once():
    fallback = [{"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}]
    both = needs([slice_of("ct6e-standard-4t", "4x8", fallback=fallback)], 4)
    first = needs([slice_of("ct6e-standard-4t", "4x8")], 4)
    assert both.nodes - first.nodes == 4 + 1


def test_a_small_stack_gets_what_gke_itself_would_take():
    made = ranges(NONE, [slice_of("ct6e-standard-8t", "2x4")], 4)
    assert vars(made) == {
        "nodes": "10.0.0.0/20",
        "pods": "10.128.0.0/14",
        "services": "10.16.0.0/20",
    }


def test_more_slices_need_no_other_network_until_there_are_thousands_of_hosts():
    small = ranges(NONE, [slice_of("ct6e-standard-4t", "4x4", count=1)], 4)
    large = ranges(NONE, [slice_of("ct6e-standard-4t", "4x4", count=800)], 4)
    assert small == large
    huge = ranges(NONE, [slice_of("ct6e-standard-4t", "16x16", count=100)], 4)
    assert (huge.nodes, huge.pods) == ("10.0.0.0/19", "10.128.0.0/13")


@given(_SLICES, st.integers(1, 100))
def test_ranges_made_hold_what_is_needed_and_lie_apart(slices, cpu_nodes):
    made = ranges(NONE, slices, cpu_nodes)
    networks = [IPv4Network(text) for text in vars(made).values()]
    if [*faults(NONE, slices, cpu_nodes, "network")]:
        return  # more than a cluster can address: see below
    hosts = sum(tpu.workers for tpu in slices)
    assert networks[0].num_addresses >= hosts + cpu_nodes + 4
    assert networks[1].num_addresses >= hosts * 64 + cpu_nodes * 256
    assert all(not one.overlaps(other) for one, other in combinations(networks, 2))
    assert all(network.is_private for network in networks)


def test_more_hosts_than_private_addresses_hold_are_refused():
    slices = [slice_of("ct5p-hightpu-4t", "16x16x24", count=1000)]
    where = [problem.where for problem in faults(NONE, slices, 4, "network")]
    assert where == ["network.nodes", "network.pods"]


@given(st.integers(8, 30), _SLICES)
def test_a_declared_range_is_refused_exactly_when_it_is_too_small(prefix, slices):
    network = NetworkSettings(nodes=str(IPv4Network((0x0A000000, prefix))))
    found = [p for p in faults(network, slices, 4, "n") if "addresses, and" in p.what]
    hosts = sum(tpu.workers + len(tpu.pools) for tpu in slices)
    too_small = 2 ** (32 - prefix) < hosts + 5 + 4
    assert any(problem.where == "n.nodes" for problem in found) is too_small


def test_a_declared_range_is_kept():
    network = NetworkSettings(nodes="172.20.0.0/22", pods="172.24.0.0/16")
    made = ranges(network, [], 4)
    assert (made.nodes, made.pods) == ("172.20.0.0/22", "172.24.0.0/16")
    assert made.services == "10.16.0.0/20"


@pytest.mark.parametrize("role", ["nodes", "pods", "services"])
@pytest.mark.parametrize("text", ["127.0.0.0/12", "224.0.0.0/12", "169.254.0.0/16", "0.0.0.0/9"])
def test_a_range_is_one_that_machines_can_have(role, text):
    network = NetworkSettings(**{role: text})
    (fault,) = faults(network, [], 4, "n")
    assert (fault.where, fault.what.split()[0]) == (f"n.{role}", text)


def test_services_have_a_range_that_gke_takes():
    assert [*faults(NetworkSettings(services="10.16.0.0/28"), [], 4, "n")] == []
    (fault,) = faults(NetworkSettings(services="10.16.0.0/29"), [], 4, "n")
    assert (fault.where, fault.fix) == ("n.services", "use a /28 or larger")
