"""A slice is asked for in a zone of the cluster, and where Google is known to have it."""

import pytest

from tests.infra.config.stack import faults, on_existing, on_gke, only, remarks

TWO_ZONES = {"cluster__zones": ["us-east5-b", "us-east5-a"]}


def in_zone(zone, **terms):
    return [{"spot": {"zone": zone, **terms}}]


def test_a_zone_of_the_cluster_is_accepted():
    assert faults(on_gke(slices__0__capacity=in_zone("us-east5-b"))) == []


@pytest.mark.parametrize(
    "rung",
    [
        {"spot": {"zone": "us-east5-a"}},
        {"reservation": {"name": "r", "zone": "us-east5-a"}},
        {"on_demand": {"zone": "us-east5-a"}},
    ],
)
def test_a_zone_that_the_cluster_lacks_is_refused(rung):
    (key,) = rung
    line = only(faults(on_gke(slices__0__capacity=[rung])), f"slices[0].capacity[0].{key}.zone")
    assert "'us-east5-a' is no zone of the cluster; use us-east5-b" in line


def test_a_zone_of_another_shape_is_judged_too():
    other = {
        "machine_type": "ct5lp-hightpu-4t",
        "topology": "4x4",
        "capacity": in_zone("us-west4-a"),
    }
    lines = faults(on_gke(slices__0__fallback=[other], workloads=[]))
    only(lines, "slices[0].fallback[0].capacity[0].spot.zone")


@pytest.mark.parametrize(
    ("zones", "what"),
    [
        (["us-west4-a"], "'us-west4-a' is not in us-east5"),
        (["us-east5-b", "us-east5-b"], "is also raytpu:cluster.zones[0]"),
    ],
)
def test_zones_are_of_the_clusters_region_and_named_once(zones, what):
    stack = on_gke(cluster__zones=zones, slices=[], workloads=[])
    assert what in only(faults(stack), f"cluster.zones[{len(zones) - 1}]")


def test_a_zone_for_the_control_plane_is_in_the_same_region_as_the_nodes():
    stack = on_gke(cluster__location="us-east5-a")
    assert faults(stack) == []


@pytest.mark.parametrize(
    ("shape", "where"),
    [
        ({"machine_type": "ct6e-standard-4t", "topology": "4x4"}, "slices[0]"),
        ({"machine_type": "ct6e-standard-8t", "topology": "2x4"}, "slices[0]"),
    ],
)
def test_a_node_pool_is_in_one_zone_of_several(shape, where):
    tpu = {"name": "train", **shape, "capacity": [{"spot": {}}]}
    stack = on_gke(**TWO_ZONES, slices=[tpu], workloads=[])
    line = only(faults(stack), f"{where}.capacity[0].spot.zone")
    assert "add zone: us-east5-b, or provision: compute_class" in line
    for way_out in ({"capacity": in_zone("us-east5-a")}, {"provision": "compute_class"}):
        assert faults(on_gke(**TWO_ZONES, slices=[{**tpu, **way_out}], workloads=[])) == []


def test_v4_exists_in_one_zone_alone():
    tpu = {"name": "v4", "machine_type": "ct4p-hightpu-4t", "topology": "2x2x4"}
    stack = on_gke(slices=[tpu], workloads=[])
    line = only(faults(stack), "slices[0].machine_type")
    assert line.endswith("v4 does not exist in us-east5-b; use us-central2-b")
    stack["cluster"].update(location="us-central2", zones=["us-central2-b"])
    assert faults(stack) == []
    assert remarks(stack) == []


@pytest.mark.parametrize(
    ("machine", "topology", "zone", "known"),
    [
        ("ct6e-standard-4t", "4x4", "us-east5-b", True),
        ("ct6e-standard-4t", "4x4", "us-east5-c", False),
        ("ct5lp-hightpu-8t", "2x4", "us-west4-a", True),
        ("ct5lp-hightpu-8t", "2x4", "us-east5-b", False),
        ("ct5p-hightpu-4t", "2x2x4", "us-east5-a", True),
        ("tpu7x-standard-4t", "2x2x4", "us-central1-c", True),
        ("tpu7x-standard-4t", "2x2x4", "us-central1-ai1a", True),
        ("tpu7x-standard-4t", "2x2x4", "us-east5-a", False),
    ],
)
def test_a_zone_that_is_not_documented_is_remarked_and_not_refused(machine, topology, zone, known):
    tpu = {"name": "any", "machine_type": machine, "topology": topology}
    stack = on_gke(slices=[tpu], workloads=[])
    stack["cluster"].update(location="-".join(zone.split("-")[:2]), zones=[zone])
    lines = [line for line in remarks(stack) if "documented" in line]
    if known:
        assert lines == []
    else:
        assert f"and not for {zone}; not checked" in only(lines, "slices[0].machine_type")


def test_one_zone_of_several_that_has_it_is_enough():
    stack = on_gke(
        cluster__zones=["us-east5-c", "us-east5-a"],
        slices__0__provision="compute_class",
        slices__1__provision="compute_class",
    )
    assert [line for line in remarks(stack) if "documented" in line] == []


def test_flex_start_is_offered_in_fewer_zones():
    tpu = {
        "name": "v5p",
        "machine_type": "ct5p-hightpu-4t",
        "topology": "2x2x4",
        "capacity": [{"flex_start": {}}],
    }
    stack = on_gke(slices=[tpu], workloads=[])
    stack["cluster"].update(location="us-central1", zones=["us-central1-a"])
    line = only(remarks(stack), "slices[0].capacity[0].flex_start")
    assert "flex-start of v5p is documented for us-east5-a, and not for us-central1-a" in line


def test_a_cluster_of_others_may_leave_its_zones_unsaid():
    assert faults(on_existing(slices__0__capacity=in_zone("us-east5-a"))) == []
    stack = on_existing(slices__0__capacity=in_zone("us-east5-a"))
    stack["cluster"]["zones"] = ["us-east5-b"]
    only(faults(stack), "slices[0].capacity[0].spot.zone")
