from typing import Any

import pytest

from infra.gke.network import network_args
from tests.infra.gke.stacks import stack

HOST = {"name": "chat", "machine_type": "ct6e-standard-8t", "topology": "2x4"}
MULTI_HOST = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
FALLS_BACK = {**HOST, "fallback": [{"machine_type": "ct6e-standard-4t", "topology": "4x4"}]}


@pytest.mark.parametrize(
    ("slices", "mtu"),
    [([], 1460), ([HOST], 1460), ([MULTI_HOST], 8896), ([HOST, MULTI_HOST], 8896)],
)
def test_packets_are_jumbo_where_a_slice_has_several_hosts(slices: list[Any], mtu: int):
    assert network_args(stack(*slices)).network["mtu"] == mtu


def test_a_fallback_of_several_hosts_counts():
    assert network_args(stack(FALLS_BACK)).network["mtu"] == 8896


def test_the_network_is_the_stacks_own_and_has_one_subnetwork():
    made = network_args(stack())
    assert made.network["name"] == "raytpu-dev"
    assert made.network["auto_create_subnetworks"] is False
    assert made.subnetwork["network"] == "raytpu-dev"
    assert made.subnetwork["region"] == "us-east5"


def test_ranges_are_those_of_the_declared_slices():
    ranges = {"nodes": "10.1.0.0/24", "pods": "10.2.0.0/16", "services": "10.3.0.0/22"}
    subnetwork = network_args(stack(HOST, cluster={"network": ranges})).subnetwork
    assert subnetwork["ip_cidr_range"] == "10.1.0.0/24"
    assert subnetwork["secondary_ip_ranges"] == [
        {"range_name": "pods", "ip_cidr_range": "10.2.0.0/16"},
        {"range_name": "services", "ip_cidr_range": "10.3.0.0/22"},
    ]


def test_a_zonal_cluster_has_the_network_of_its_region():
    made = network_args(stack(cluster={"location": "us-east5-b"}))
    assert {made.subnetwork["region"], made.router["region"], made.nat["region"]} == {"us-east5"}


def test_an_ai_zone_lies_in_the_region_before_it():
    where = {"location": "us-central1-ai1a", "zones": ["us-central1-ai1a"]}
    assert network_args(stack(cluster=where)).router["region"] == "us-central1"


def test_nodes_reach_google_inside_and_the_rest_by_nat():
    made = network_args(stack())
    assert made.subnetwork["private_ip_google_access"] is True
    assert made.nat["router"] == made.router["name"]
    assert made.nat["nat_ip_allocate_option"] == "AUTO_ONLY"
    assert made.nat["source_subnetwork_ip_ranges_to_nat"] == "ALL_SUBNETWORKS_ALL_IP_RANGES"


def test_dynamic_ports_exclude_endpoint_independent_mapping_and_are_powers_of_two():
    nat = network_args(stack()).nat
    assert nat["enable_dynamic_port_allocation"] is True
    assert nat["enable_endpoint_independent_mapping"] is False
    assert [
        ports & (ports - 1) for ports in (nat["min_ports_per_vm"], nat["max_ports_per_vm"])
    ] == [
        0,
        0,
    ]
