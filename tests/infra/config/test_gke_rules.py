"""The cluster's version, its network and its name fit what the stack declares."""

import pytest

from tests.infra.config.stack import faults, on_autopilot, on_existing, on_gke, only, remarks

V6E = {"name": "v6e", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
V5E = {"name": "v5e", "machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}
TPU7X = {"name": "tpu7x", "machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}
BY_CLASS = {"provision": "compute_class"}
FLEX = {"capacity": [{"flex_start": {}}]}


def of(version, *slices, made=on_gke):
    stack = made(slices=[*slices], workloads=[])
    stack["cluster"]["version"] = version
    return stack


@pytest.mark.parametrize(
    ("tpu", "least", "before", "feature"),
    [
        (V5E, "1.30.0-gke.1747000", "1.30.0-gke.1746999", "the Ray operator add-on"),
        (V6E, "1.31.2-gke.1115000", "1.31.2-gke.1114999", "v6e slices"),
        ({**V5E, **FLEX}, "1.33.0-gke.1712000", "1.33.0-gke.1711999", "TPUs by flex-start"),
        (TPU7X, "1.34.0-gke.2201000", "1.34.0-gke.2200999", "tpu7x slices"),
        ({**V6E, **BY_CLASS}, "1.33.1-gke.1545000", "1.33.1-gke.1544999", "zones in a compute"),
        ({**TPU7X, **BY_CLASS}, "1.34.1-gke.2541000", "1.34.1-gke.2540999", "node pools of tpu7x"),
    ],
)
def test_a_version_is_refused_that_a_declared_feature_is_newer_than(tpu, least, before, feature):
    assert faults(of(least, tpu)) == []
    line = only(faults(of(before, tpu)), "cluster.version")
    assert f"'{before}' is too old: " in line
    assert feature in line
    assert line.endswith(f"take {least} or later; use {least}")


def test_tpu7x_comes_to_autopilot_later():
    assert faults(of("1.34.1-gke.3084001", TPU7X, made=on_autopilot)) == []
    line = only(faults(of("1.34.1-gke.3084000", TPU7X, made=on_autopilot)), "cluster.version")
    assert "tpu7x slices on Autopilot" in line


def test_each_feature_that_is_too_new_is_a_line_and_none_is_told_twice():
    lines = faults(of("1.30.5-gke.1", {**V6E, **BY_CLASS}, {**V6E, **BY_CLASS, "name": "other"}))
    assert len(lines) == len({*lines}) == 5
    assert all(line.startswith("raytpu:cluster.version: '1.30.5-gke.1' ") for line in lines)


@pytest.mark.parametrize(
    ("version", "enough"),
    [("1.34", True), ("1.33", False), ("1.35", True), ("1.34.0", False), ("1.34.1", True)],
)
def test_of_a_short_version_gke_takes_the_newest(version, enough):
    lines = faults(of(version, {**TPU7X, **BY_CLASS}))
    assert (lines == []) is enough


@pytest.mark.parametrize("version", ["latest", "1", "1.34.1-gke", "v1.34", "1.34.1-gke.1.2", ""])
def test_a_version_is_one_of_gke(version):
    only(faults(of(version, V6E)), "cluster.version")


def test_without_a_version_the_newest_need_is_told_and_not_checked():
    stack = on_gke(slices=[V6E, {**TPU7X, **BY_CLASS}], workloads=[])
    stack["cluster"].update(version=None, location="us-central1", zones=["us-central1-b"])
    line = next(line for line in remarks(stack) if "cluster.version" in line)
    assert "take GKE 1.34.1-gke.2541000 or later; not checked" in line


def test_a_cluster_of_others_may_have_a_ray_operator_of_its_own():
    assert faults(of("1.29.0", V5E, made=on_existing)) == []
    only(faults(of("1.29.0", V6E, made=on_existing)), "cluster.version")


def test_zones_in_a_compute_class_count_where_they_are_said():
    stack = of("1.32.3-gke.1499000", {**V6E, **BY_CLASS}, made=on_existing)
    assert faults(stack) == []
    stack["cluster"]["zones"] = ["us-east5-b"]
    assert "zones in a compute class" in only(faults(stack), "cluster.version")


def test_a_cluster_of_others_may_lack_what_makes_nodes():
    def said(version):
        stack = of(version, {**V6E, **BY_CLASS}, made=on_existing)
        return [line for line in remarks(stack) if "auto-provisioning" in line]

    only(said("1.33.2-gke.1"), "cluster.mode")
    only(said(None), "cluster.mode")
    assert said("1.33.3-gke.1136000") == []


@pytest.mark.parametrize("name", ["dev", "v6e-prod2"])
def test_a_stacks_name_becomes_a_part_of_names(name):
    assert faults(on_gke(), stack=name) == []


@pytest.mark.parametrize("name", ["Dev", "dev_1", "dev.eu", "1dev", "dev-"])
def test_a_stack_is_refused_whose_name_google_refuses(name):
    (line,) = faults(on_gke(), stack=name)
    assert line.startswith(f"stack {name}: its name cannot be a part")


# Addresses


def test_ranges_that_hold_the_slices_are_accepted():
    network = {"nodes": "10.0.0.0/28", "pods": "10.4.0.0/21", "services": "10.8.0.0/24"}
    assert faults(on_gke(cluster__network=network)) == []  # 16 nodes' addresses: all are needed


@pytest.mark.parametrize(
    ("role", "text", "has", "needs"),
    [
        # 4 + 1 for an upgrade without TPU, 4 + 1 and 1 + 1 with, 4 that Google takes.
        ("nodes", "10.0.0.0/29", "has 8 addresses", "need 16; use a /28 or larger"),
        # 5 blocks of 256 and 7 of 64.
        ("pods", "10.4.0.0/22", "has 1024 addresses", "need 1728; use a /21 or larger"),
    ],
)
def test_a_range_that_cannot_hold_the_slices_is_refused_with_what_is_needed(role, text, has, needs):
    line = only(faults(on_gke(cluster__network={role: text})), f"cluster.network.{role}")
    assert f"{text} {has}, and 5 nodes without TPU and 7 with" in line
    assert needs in line


@pytest.mark.parametrize(
    ("network", "where", "other"),
    [
        (
            {"nodes": "10.4.0.0/20", "pods": "10.4.0.0/16"},
            "nodes",
            "10.4.0.0/16, the range of pods",
        ),
        ({"services": "10.128.0.0/20"}, "services", "10.128.0.0/14, the range of pods"),
        ({"pods": "10.0.0.0/16"}, "pods", "10.0.0.0/20, the range of nodes"),
    ],
)
def test_ranges_lie_apart(network, where, other):
    line = only(faults(on_gke(cluster__network=network)), f"cluster.network.{where}")
    assert f"overlaps {other}" in line


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("10.0.0.1/20", "does not begin a range of its size; write 10.0.0.0/20"),
        ("10.0.0.0", "does not begin a range of its size; write 10.0.0.0/32"),
        ("10.0.0.0/33", "is no range of IPv4 addresses"),
        ("fd00::/64", "is no range of IPv4 addresses"),
        ("any", "is no range of IPv4 addresses"),
    ],
)
def test_a_range_is_written_as_one(text, what):
    lines = faults(on_gke(cluster__network={"services": text}))
    assert what in only(lines, "cluster.network.services")


@pytest.mark.parametrize(
    ("cidr", "said"),
    [("0.0.0.0/0", True), ("128.0.0.0/1", True), ("10.0.0.0/8", False), ("203.0.113.0/24", False)],
)
def test_a_control_plane_that_is_open_to_the_internet_is_remarked(cidr, said):
    stack = on_gke(cluster__authorized_networks=[{"name": "all", "cidr": cidr}])
    lines = [line for line in remarks(stack) if "authorized_networks[0].cidr" in line]
    assert (lines != []) is said
