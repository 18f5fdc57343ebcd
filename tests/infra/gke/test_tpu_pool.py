"""What GKE wants of a TPU node pool, against tables written by hand.

The rules are those of GKE's own documentation and error messages (see docs): each test names one.
"""

from typing import Any

import pytest

from infra.gke.node_config import IGNORED
from infra.gke.tpu_pool import TpuPoolArgs, tpu_pool_args
from tests.infra.gke.stacks import stack

CENTRAL2 = {"location": "us-central2", "zones": ["us-central2-b"]}
WEST4 = {"location": "us-west4", "zones": ["us-west4-a"]}
EAST5A = {"location": "us-east5", "zones": ["us-east5-a"]}
CENTRAL1 = {"location": "us-central1", "zones": ["us-central1-c"]}

COMPACT = "COMPACT"
POLICY = ""
"""The type of a placement by a workload policy."""

# machine, topology, nodes of the one slice's pool, placement, boot disk, where
ROWS = [
    ("ct4p-hightpu-4t", "2x2x1", 1, None, None, CENTRAL2),
    ("ct4p-hightpu-4t", "2x2x4", 4, COMPACT, None, CENTRAL2),
    ("ct5lp-hightpu-1t", "1x1", 1, None, "pd-balanced", WEST4),
    ("ct5lp-hightpu-4t", "2x2", 1, None, "pd-balanced", WEST4),
    ("ct5lp-hightpu-4t", "2x4", 2, COMPACT, "pd-balanced", WEST4),
    ("ct5lp-hightpu-4t", "16x16", 64, COMPACT, "pd-balanced", WEST4),
    ("ct5lp-hightpu-8t", "2x4", 1, None, "pd-balanced", WEST4),
    ("ct5p-hightpu-4t", "2x2x1", 1, None, None, EAST5A),
    ("ct5p-hightpu-4t", "4x4x4", 16, COMPACT, None, EAST5A),
    ("ct6e-standard-1t", "1x1", 1, None, "hyperdisk-balanced", EAST5A),
    ("ct6e-standard-4t", "2x2", 1, None, "hyperdisk-balanced", EAST5A),
    ("ct6e-standard-4t", "2x4", 2, COMPACT, "hyperdisk-balanced", EAST5A),
    ("ct6e-standard-4t", "4x8", 8, COMPACT, "hyperdisk-balanced", EAST5A),
    ("ct6e-standard-8t", "2x4", 1, None, "hyperdisk-balanced", EAST5A),
    ("tpu7x-standard-4t", "2x2x1", 1, None, "hyperdisk-balanced", CENTRAL1),
    ("tpu7x-standard-4t", "2x2x2", 2, POLICY, "hyperdisk-balanced", CENTRAL1),
    ("tpu7x-ultranet-4t", "4x4x4", 16, POLICY, "hyperdisk-balanced", CENTRAL1),
]
IDS = [f"{machine}-{topology}" for machine, topology, *_ in ROWS]

HOST: dict[str, Any] = {"machine_type": "ct6e-standard-8t", "topology": "2x4"}
MULTI_HOST: dict[str, Any] = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
IRONWOOD: dict[str, Any] = {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}


def made(cluster: dict[str, Any] | None = None, **declared: Any) -> TpuPoolArgs:
    config = stack({"name": "train", **declared}, cluster=cluster)
    return tpu_pool_args(config, config.slices[0])


def pool(cluster: dict[str, Any] | None = None, **declared: Any) -> dict[str, Any]:
    (only,) = made(cluster, **declared).pools
    return only


@pytest.mark.parametrize(
    ("machine", "topology", "nodes", "placement", "disk", "where"), ROWS, ids=IDS
)
def test_a_pool_is_as_gke_wants_it_for_the_machine(
    machine: str, topology: str, nodes: int, placement: str | None, disk: str | None, where: Any
):
    one = pool(where, machine_type=machine, topology=topology)
    assert one["node_config"]["machine_type"] == machine
    assert one["node_config"].get("disk_type") == disk
    assert one["autoscaling"]["max_node_count"] == nodes
    if placement is None:
        assert "placement_policy" not in one
    else:
        assert one["placement_policy"]["type"] == placement
        assert one["placement_policy"]["tpu_topology"] == topology


def test_each_copy_of_a_multi_host_slice_is_a_pool():
    pools = made(**MULTI_HOST, count=3).pools
    assert [one["name"] for one in pools] == ["train-0", "train-1", "train-2"]
    assert [one["autoscaling"]["max_node_count"] for one in pools] == [4, 4, 4]


def test_a_further_copy_leaves_the_first_as_they_are():
    two, three = (made(**MULTI_HOST, count=count).pools for count in (2, 3))
    assert three[:2] == two


def test_copies_of_a_single_host_slice_share_a_pool():
    one = pool(**HOST, count=3)
    assert (one["name"], one["autoscaling"]["max_node_count"]) == ("train-0", 3)


def test_limits_are_of_the_zone_and_never_a_total():
    limits = pool(**MULTI_HOST)["autoscaling"]
    assert limits == {"min_node_count": 0, "max_node_count": 4, "location_policy": "ANY"}


def test_a_pool_begins_without_nodes():
    assert pool(**MULTI_HOST)["autoscaling"]["min_node_count"] == 0
    assert not {"initial_node_count", "node_count"} & pool(**MULTI_HOST).keys()


def test_kept_hosts_of_a_slice_are_there_from_the_first_and_are_never_resized():
    kept = pool(**MULTI_HOST, keep_nodes=True)
    assert kept["initial_node_count"] == 4
    assert "autoscaling" not in kept
    assert "node_count" not in kept


def test_a_pool_that_replaces_another_takes_none_of_its_sizes():
    """What is ignored of the old pool is what the new one begins with."""
    sizes = {"initialNodeCount", "nodeCount", "autoscaling", "placementPolicy.tpuTopology"}
    assert not sizes & {*IGNORED}


def test_kept_single_hosts_follow_the_count():
    kept = pool(**HOST, count=2, keep_nodes=True)
    assert kept["node_count"] == 2
    assert "autoscaling" not in kept
    assert "initial_node_count" not in kept


def test_a_pool_lies_in_exactly_one_zone():
    both = {"zones": ["us-east5-a", "us-east5-b"]}
    assert pool(**MULTI_HOST)["node_locations"] == ["us-east5-b"]
    chosen = pool(both, **MULTI_HOST, capacity=[{"spot": {"zone": "us-east5-b"}}])
    assert chosen["node_locations"] == ["us-east5-b"]


def test_ironwood_is_placed_by_a_workload_policy_of_its_topology():
    args = made(CENTRAL1, **IRONWOOD, count=2)
    (policy,) = args.policies
    assert policy == {
        "name": "raytpu-dev-train",
        "project": "acme-ml",
        "region": "us-central1",
        "workload_policy": {"type": "HIGH_THROUGHPUT", "accelerator_topology": "2x2x2"},
    }
    placement = {"type": "", "policy_name": "raytpu-dev-train", "tpu_topology": "2x2x2"}
    assert [one["placement_policy"] for one in args.pools] == [placement, placement]


def test_no_other_generation_has_a_workload_policy():
    assert made(**MULTI_HOST).policies == ()
    assert made(CENTRAL1, machine_type="tpu7x-standard-4t", topology="2x2x1").policies == ()


def test_a_compute_class_makes_the_pools_itself_but_not_the_policy():
    ladder = [{"spot": {}}, {"on_demand": {}}]
    assert made(**MULTI_HOST, capacity=ladder).pools == ()
    ironwood = made(CENTRAL1, **IRONWOOD, capacity=ladder)
    assert ironwood.pools == ()
    assert len(ironwood.policies) == 1


NO_RESERVATION = {"consume_reservation_type": "NO_RESERVATION"}


def test_on_demand_is_said_too():
    nodes = pool(**MULTI_HOST)["node_config"]
    assert nodes["spot"] is False
    assert nodes["reservation_affinity"] == NO_RESERVATION
    assert "flex_start" not in nodes
    assert "max_run_duration" not in nodes


def test_spot_is_spot_and_takes_no_reservation():
    nodes = pool(**MULTI_HOST, capacity=[{"spot": {}}])["node_config"]
    assert nodes["spot"] is True
    assert nodes["reservation_affinity"] == NO_RESERVATION


def test_flex_start_says_its_run_and_is_never_repaired():
    one = pool(**MULTI_HOST, capacity=[{"flex_start": {"max_run_duration": "7d"}}])
    assert one["node_config"]["flex_start"] is True
    assert one["node_config"]["max_run_duration"] == "604800s"
    assert one["node_config"]["spot"] is False
    assert one["node_config"]["reservation_affinity"] == NO_RESERVATION
    assert one["management"] == {"auto_repair": False, "auto_upgrade": True}
    assert one["autoscaling"]["min_node_count"] == 0
    assert "initial_node_count" not in one
    assert "upgrade_settings" not in one  # GKE sets SHORT_LIVED, which the SDK cannot say
    assert "queued_provisioning" not in one


def test_flex_start_may_be_queued():
    one = pool(**MULTI_HOST, capacity=[{"flex_start": {"queued": True}}])
    assert one["queued_provisioning"] == {"enabled": True}
    assert one["node_config"]["flex_start"] is True


def test_queued_nodes_have_no_run_limit_and_are_repaired():
    one = pool(**MULTI_HOST, capacity=[{"queued": {}}])
    assert one["queued_provisioning"] == {"enabled": True}
    assert "max_run_duration" not in one["node_config"]
    assert "flex_start" not in one["node_config"]
    assert one["management"]["auto_repair"] is True
    assert "upgrade_settings" not in one


@pytest.mark.parametrize(
    ("reservation", "value"),
    [
        ({"name": "v6e-2026"}, "v6e-2026"),
        ({"name": "r", "block": "b"}, "r/reservationBlocks/b"),
        (
            {"name": "r", "block": "b", "sub_block": "s"},
            "r/reservationBlocks/b/reservationSubBlocks/s",
        ),
    ],
)
def test_a_reservation_is_a_specific_one_with_key_and_value(reservation: Any, value: str):
    one = pool(**MULTI_HOST, capacity=[{"reservation": reservation}])
    assert one["node_config"]["reservation_affinity"] == {
        "consume_reservation_type": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [value],
    }
    assert one["node_config"]["spot"] is False


def test_a_shared_reservation_is_named_with_its_owner():
    shared = {"name": "r", "project": "acme-capacity"}
    nodes = pool(**HOST, capacity=[{"reservation": shared}])["node_config"]
    assert nodes["reservation_affinity"]["values"] == ["projects/acme-capacity/reservations/r"]


def test_an_upgrade_asks_for_no_spare_host():
    expected = {"strategy": "SURGE", "max_surge": 0, "max_unavailable": 1}
    assert pool(**MULTI_HOST)["upgrade_settings"] == expected


def test_nodes_tell_whose_they_are():
    nodes = pool(**HOST)["node_config"]
    assert nodes["labels"] == {"raytpu/slice": "train", "raytpu/team": "research"}
    assert nodes["resource_labels"] == {
        "environment": "dev",
        "team": "research",
        "cost_center": "ml",
        "managed_by": "raytpu",
        "slice": "train",
    }


def test_a_pool_is_private_small_in_addresses_and_runs_as_the_nodes_account():
    one = pool(**HOST)
    assert one["network_config"] == {"enable_private_nodes": True}
    assert one["max_pods_per_node"] == 32
    assert one["node_config"]["service_account"] == (
        "raytpu-dev-nodes@acme-ml.iam.gserviceaccount.com"
    )
    assert one["node_config"]["workload_metadata_config"] == {"mode": "GKE_METADATA"}


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_the_name_of_a_pool_fits_gkes_limit(count: int):
    config = stack({**MULTI_HOST, "name": "s" * 35, "count": count})
    longest = max(len(one["name"]) for one in tpu_pool_args(config, config.slices[0]).pools)
    assert longest <= 40
