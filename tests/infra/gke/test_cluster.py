"""The cluster's arguments, its maintenance and its auto-provisioning."""

from typing import Any

import pytest

from infra.gke.cluster import cluster_args
from tests.infra.gke.stacks import stack

SLICE = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
BY_CLASS = {**SLICE, "provision": "compute_class"}
AUTOPILOT = {"mode": "autopilot"}
ON = {"enabled": True}


def made(*slices: dict[str, Any], environment: str = "dev", **cluster: Any) -> dict[str, Any]:
    return cluster_args(stack(*slices, cluster=cluster, environment=environment)).cluster


@pytest.mark.parametrize("mode", [{}, AUTOPILOT])
def test_the_ray_operator_logs_and_measures(mode: dict[str, Any]):
    assert made(**mode)["addons_config"]["ray_operator_configs"] == [
        {**ON, "ray_cluster_logging_config": ON, "ray_cluster_monitoring_config": ON}
    ]


@pytest.mark.parametrize("mode", [{}, AUTOPILOT])
def test_both_kinds_have_what_workloads_use(mode: dict[str, Any]):
    cluster = made(**mode)
    assert cluster["addons_config"]["gcs_fuse_csi_driver_config"] == ON
    assert cluster["secret_manager_config"] == ON
    assert cluster["monitoring_config"]["managed_prometheus"] == ON
    assert "SYSTEM_COMPONENTS" in cluster["monitoring_config"]["enable_components"]
    assert cluster["logging_config"]["enable_components"] == ["SYSTEM_COMPONENTS", "WORKLOADS"]
    assert cluster["private_cluster_config"] == {"enable_private_nodes": True}


def test_a_standard_cluster_is_closed_by_default():
    cluster = made()
    assert cluster["workload_identity_config"] == {"workload_pool": "acme-ml.svc.id.goog"}
    assert cluster["datapath_provider"] == "ADVANCED_DATAPATH"
    assert cluster["enable_shielded_nodes"] is True
    assert cluster["networking_mode"] == "VPC_NATIVE"


def test_autopilot_is_told_nothing_that_it_refuses():
    """Each of these conflicts with enable_autopilot in Google's provider, or is Autopilot's own."""
    refused = {
        "enable_shielded_nodes",
        "remove_default_node_pool",
        "initial_node_count",
        "node_config",
        "default_max_pods_per_node",
        "enable_intranode_visibility",
        "network_policy",
    }
    cluster = made(**AUTOPILOT)
    assert cluster["enable_autopilot"] is True
    assert not refused & {*cluster}
    assert not {"enabled", "resource_limits"} & {*cluster["cluster_autoscaling"]}


def test_nodes_of_autopilot_run_as_the_stacks_own_account():
    defaults = made(**AUTOPILOT)["cluster_autoscaling"]["auto_provisioning_defaults"]
    assert defaults["service_account"] == "raytpu-dev-nodes@acme-ml.iam.gserviceaccount.com"


def test_the_pool_that_every_cluster_begins_with_is_removed():
    cluster = made()
    assert cluster["remove_default_node_pool"] is True
    assert cluster["initial_node_count"] == 1
    account = "raytpu-dev-nodes@acme-ml.iam.gserviceaccount.com"
    assert cluster["node_config"] == {"service_account": account}


@pytest.mark.parametrize(
    ("environment", "declared", "protected"),
    [
        ("dev", {}, False),
        ("prod", {}, True),
        ("dev", {"deletion_protection": True}, True),
        ("staging", {"deletion_protection": False}, False),
    ],
)
@pytest.mark.parametrize("mode", [{}, AUTOPILOT])
def test_protection_is_always_said(
    mode: dict[str, Any], environment: str, declared: dict[str, Any], *, protected: bool
):
    cluster = made(environment=environment, **mode, **declared)
    assert cluster["deletion_protection"] is protected


def test_the_version_is_a_least_one_of_the_channel():
    cluster = made(release_channel="rapid", version="1.35.3-gke.1737000")
    assert cluster["release_channel"] == {"channel": "RAPID"}
    assert cluster["min_master_version"] == "1.35.3-gke.1737000"
    assert "min_master_version" not in made()
    assert made()["release_channel"] == {"channel": "REGULAR"}


def test_without_authorized_networks_there_is_no_address_to_reach():
    endpoints = made()["control_plane_endpoints_config"]
    assert endpoints["dns_endpoint_config"] == {"allow_external_traffic": True}
    assert endpoints["ip_endpoints_config"] == {"enabled": False}
    assert "master_authorized_networks_config" not in made()


def test_the_address_answers_to_authorized_networks_alone():
    cluster = made(authorized_networks=[{"name": "office", "cidr": "203.0.113.0/24"}])
    assert cluster["control_plane_endpoints_config"]["ip_endpoints_config"] == {"enabled": True}
    assert cluster["master_authorized_networks_config"] == {
        "cidr_blocks": [{"display_name": "office", "cidr_block": "203.0.113.0/24"}],
        "gcp_public_cidrs_access_enabled": False,
    }


@pytest.mark.parametrize(
    ("location", "zones", "node_locations"),
    [
        ("us-east5", ["us-east5-b", "us-east5-a"], ["us-east5-b", "us-east5-a"]),
        ("us-east5-b", ["us-east5-b"], []),
        ("us-east5-b", ["us-east5-a", "us-east5-b"], ["us-east5-a"]),
    ],
)
def test_a_zonal_cluster_names_only_its_further_zones(
    location: str, zones: list[str], node_locations: list[str]
):
    assert made(location=location, zones=zones)["node_locations"] == node_locations


def test_labels_are_for_the_bill():
    assert made(labels={"owner": "ada"})["resource_labels"] == {
        "owner": "ada",
        "environment": "dev",
        "team": "research",
        "cost_center": "ml",
        "managed_by": "raytpu",
    }


def test_maintenance_is_left_to_gke_unless_declared():
    assert "maintenance_policy" not in made()


def test_a_window_recurs_weekly_and_may_pass_midnight():
    window = {"days": ["SA", "SU"], "start": "22:30", "hours": 8}
    policy = made(maintenance={"window": window})["maintenance_policy"]
    assert policy["recurring_window"] == {
        "start_time": "2026-01-05T22:30:00Z",
        "end_time": "2026-01-06T06:30:00Z",
        "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU",
    }


def test_an_exclusion_comes_with_a_window_for_gke_takes_none_without():
    launch = {"name": "launch", "start": "2026-12-20T00:00:00Z", "end": "2027-01-05T00:00:00Z"}
    policy = made(maintenance={"exclusions": [launch]})["maintenance_policy"]
    assert policy["maintenance_exclusions"] == [
        {
            "exclusion_name": "launch",
            "start_time": "2026-12-20T00:00:00Z",
            "end_time": "2027-01-05T00:00:00Z",
            "exclusion_options": {"scope": "NO_UPGRADES"},
        }
    ]
    assert policy["recurring_window"]["recurrence"] == "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR,SA,SU"


@pytest.mark.parametrize(
    ("declared", "version", "on"),
    [
        (SLICE, "1.33.1-gke.1788000", False),
        (BY_CLASS, "1.33.1-gke.1788000", True),
        (BY_CLASS, "1.33.3-gke.1136000", False),
        (BY_CLASS, None, False),
    ],
)
def test_gke_makes_pools_of_its_own_only_where_a_class_needs_it(
    declared: dict[str, Any], version: str | None, *, on: bool
):
    chosen = {} if version is None else {"version": version}
    assert made(declared, **chosen)["cluster_autoscaling"]["enabled"] is on


def test_auto_provisioning_may_make_what_is_declared_and_no_more():
    """Two v6e 4x4 of 8 hosts with 180 vCPUs and 720 GiB each, and 4 CPU nodes of 8 vCPUs."""
    args = made({**BY_CLASS, "count": 2}, version="1.33.1-gke.1788000")["cluster_autoscaling"]
    assert args["resource_limits"] == [
        {"resource_type": "cpu", "maximum": 8 * 180 + 4 * 8},
        {"resource_type": "memory", "maximum": 8 * 720 + 4 * 8 * 8},
        {"resource_type": "tpu-v6e-slice", "maximum": 32},
    ]
    assert args["auto_provisioning_locations"] == ["us-east5-b"]


def test_idle_nodes_go_soon():
    assert made()["cluster_autoscaling"]["autoscaling_profile"] == "OPTIMIZE_UTILIZATION"
