from typing import Any

import pytest

from infra.gke.cpu_pool import cpu_pool_args
from tests.infra.gke.stacks import stack


def pool(**cluster: Any) -> dict[str, Any]:
    args = cpu_pool_args(stack(cluster=cluster))
    assert args is not None
    return args.pool


def test_the_pool_is_of_the_declared_machine_and_grows_over_all_zones():
    declared = {"machine_type": "n2-standard-16", "min_nodes": 2, "max_nodes": 8}
    made = pool(cpu_pool=declared)
    assert made["node_config"]["machine_type"] == "n2-standard-16"
    assert made["autoscaling"] == {
        "total_min_node_count": 2,
        "total_max_node_count": 8,
        "location_policy": "BALANCED",
    }


@pytest.mark.parametrize(
    ("zones", "least", "most", "used", "each"),
    [
        (["us-east5-a"], 3, 4, ["us-east5-a"], 3),
        (["us-east5-a", "us-east5-b"], 3, 4, ["us-east5-a", "us-east5-b"], 1),
        (["us-east5-a", "us-east5-b"], 1, 4, ["us-east5-a", "us-east5-b"], 1),
        (["us-east5-a", "us-east5-b"], 1, 1, ["us-east5-a"], 1),
    ],
)
def test_the_pool_begins_within_its_limits(
    zones: list[str], least: int, most: int, used: list[str], each: int
):
    made = pool(zones=zones, cpu_pool={"min_nodes": least, "max_nodes": most})
    assert made["node_locations"] == used
    assert made["initial_node_count"] == each
    assert each * len(used) <= most


def test_nodes_are_shielded_private_and_run_as_the_stacks_own_account():
    made = pool()
    assert made["node_config"]["shielded_instance_config"] == {
        "enable_secure_boot": True,
        "enable_integrity_monitoring": True,
    }
    assert made["network_config"] == {"enable_private_nodes": True}
    account = "raytpu-dev-nodes@acme-ml.iam.gserviceaccount.com"
    assert made["node_config"]["service_account"] == account


def test_nodes_carry_no_taint():
    assert "taints" not in pool()["node_config"]


def test_autopilot_has_no_pool():
    assert cpu_pool_args(stack(cluster={"mode": "autopilot"})) is None
