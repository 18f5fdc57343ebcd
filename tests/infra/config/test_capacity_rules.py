"""Combinations of capacity that GKE or a compute class refuses are refused before anything is made.

The rows are those that GKE's autoscaler, the ComputeClass's schema and Google's own Terraform
refuse. Some cannot be written at all, since what they combine is derived: spot beside flex-start or
a reservation (a rung has one kind), a reservation of affinity ANY, a number of nodes beside
flex-start, a topology on a single-host pool, COMPACT on tpu7x, a total of nodes, a collection.
"""

import pytest

from tests.infra.config.stack import faults, on_autopilot, on_existing, on_gke, only, read, remarks

FLEX = {"flex_start": {}}
SPOT = {"spot": {}}
QUEUED = {"queued": {}}
ON_DEMAND = {"on_demand": {}}
RESERVED = {"reservation": {"name": "v6e-2026"}}
SHARED = {"reservation": {"name": "v6e-2026", "project": "acme-shared"}}
V5E = {"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}
V4 = {"machine_type": "ct4p-hightpu-4t", "topology": "2x2x4"}
TPU7X = {"machine_type": "tpu7x-standard-4t", "topology": "2x2x4"}


BY_HAND = {"name": "by-hand", "kind": "cluster", "slice": "train"}


def train(**more):
    """The slice `train` with other keys; with other shapes, for a cluster to work on by hand."""
    changes = {f"slices__0__{key}": value for key, value in more.items()}
    return {**changes, "workloads": [BY_HAND]} if "fallback" in more else changes


@pytest.mark.parametrize("rung", [FLEX, SPOT, QUEUED, ON_DEMAND, RESERVED])
def test_each_kind_of_capacity_is_accepted_alone(rung):
    config = read(on_gke(**train(capacity=[rung])))
    assert config.slice("train").provision == "node_pools"
    (key,) = rung
    assert [one.key for one in config.slice("train").capacity] == [key]


def test_a_ladder_keeps_the_users_order_and_takes_a_compute_class():
    tpu = read(on_gke(**train(capacity=[SPOT, FLEX, RESERVED, ON_DEMAND]))).slice("train")
    assert [rung.kind for rung in tpu.capacity] == [
        "spot",
        "flex-start",
        "reservation",
        "on-demand",
    ]
    assert tpu.provision == "compute_class"


def test_another_shape_takes_a_compute_class_and_a_worker_group_of_its_own():
    tpu = read(on_gke(**train(fallback=[V5E]))).slice("train")
    assert tpu.provision == "compute_class"
    assert [shape.name for shape in tpu.shapes] == ["train", "train-v5e-4x4"]
    assert [shape.pod_type for shape in tpu.shapes] == ["v6e-16", "v5litepod-16"]


@pytest.mark.parametrize(
    ("tpu", "where", "what"),
    [
        (
            {"provision": "node_pools", "capacity": [SPOT, ON_DEMAND]},
            "slices[0].provision",
            "takes one kind of capacity, and 2 are listed",
        ),
        (
            {"provision": "node_pools", "fallback": [V5E]},
            "slices[0].provision",
            "no order between shapes",
        ),
        (
            {"keep_nodes": True, "provision": "compute_class"},
            "slices[0].keep_nodes",
            "what a compute class made",
        ),
        (
            {"keep_nodes": True, "capacity": [FLEX]},
            "slices[0].keep_nodes",
            "flex-start has no nodes until",
        ),
        (
            {"keep_nodes": True, "capacity": [QUEUED]},
            "slices[0].keep_nodes",
            "a ProvisioningRequest asks",
        ),
        (
            {"capacity": [QUEUED], "provision": "compute_class"},
            "slices[0].capacity[0].queued",
            "cannot be asked for by a compute class",
        ),
        (
            {"capacity": [ON_DEMAND, {"flex_start": {"queued": True}}]},
            "slices[0].capacity[1].flex_start.queued",
            "cannot be asked for by a compute class",
        ),
        (
            {"capacity": [SHARED]},
            "slices[0].capacity[0].reservation.project",
            "no shared reservation for a slice of several hosts",
        ),
        (
            {"fallback": [{**V5E, "capacity": [SPOT, SHARED]}]},
            "slices[0].fallback[0].capacity[1].reservation.project",
            "'acme-shared' is another project",
        ),
        (
            {"capacity": [SPOT, ON_DEMAND, SPOT]},
            "slices[0].capacity[2]",
            "the same as capacity[0]",
        ),
    ],
)
def test_what_excludes_each_other_is_refused_at_its_place(tpu, where, what):
    assert what in only(faults(on_gke(**train(**tpu))), where)


def test_v4_has_no_flex_start():
    stack = on_gke(
        cluster__location="us-central2",
        cluster__zones=["us-central2-b"],
        slices=[{"name": "train", **V4, "capacity": [FLEX]}],
        workloads=[],
    )
    line = only(faults(stack), "slices[0].capacity[0].flex_start")
    assert line.endswith("does not exist for v4; use on_demand, spot or reservation")


def test_a_shared_reservation_serves_slices_of_one_host():
    assert faults(on_gke(slices__1__capacity=[SHARED])) == []
    own = {"reservation": {"name": "v6e-2026", "project": "acme-ml"}}
    assert faults(on_gke(**train(capacity=[own]))) == []


def test_a_shared_reservation_is_taken_as_a_whole():
    part = {"reservation": {"name": "v6e-2026", "project": "acme-shared", "block": "b"}}
    line = only(
        faults(on_gke(slices__1__capacity=[part])), "slices[1].capacity[0].reservation.block"
    )
    assert "'b' is a part of another project's reservation" in line


def test_autopilot_makes_nodes_by_compute_classes_alone():
    config = read(on_autopilot())
    assert [tpu.provision for tpu in config.slices] == ["compute_class"] * 2
    line = only(faults(on_autopilot(**train(provision="node_pools"))), "slices[0].provision")
    assert "does not exist on Autopilot" in line


def test_in_a_cluster_of_others_pods_may_select_node_pools_that_are_there():
    stack = on_existing(**train(keep_nodes=True))
    assert read(stack).slice("train").provision == "node_pools"
    kept = [line for line in remarks(stack) if "keep_nodes" in line]
    assert "no effect" in only(kept, "slices[0].keep_nodes")


def test_in_a_cluster_of_others_a_compute_class_of_tpu7x_has_no_workload_policy():
    stack = on_existing(slices=[{"name": "t", **TPU7X, "provision": "compute_class"}], workloads=[])
    assert "needs a workload policy" in only(faults(stack), "slices[0].topology")
    stack["slices"][0]["provision"] = "node_pools"
    assert faults(stack) == []
    stack["slices"][0].update(provision="compute_class", topology="2x2x1")
    assert faults(stack) == []


@pytest.mark.parametrize(
    ("tpu", "where", "what"),
    [
        (
            {"capacity": [{"flex_start": {"queued": True}}]},
            "slices[0].capacity[0].flex_start.queued",
            "takes a GKE version of 2026",
        ),
        ({"capacity": [QUEUED]}, "slices[0].capacity[0].queued", "as Kueue makes them"),
        (
            {
                "capacity": [{"reservation": {"name": "r", "block": "b"}}],
                "provision": "compute_class",
            },
            "slices[0].capacity[0].reservation.block",
            "compute classes of GPUs alone",
        ),
    ],
)
def test_what_may_work_is_remarked_and_accepted(tpu, where, what):
    assert what in only(remarks(on_gke(**train(**tpu))), where)


def test_a_run_of_flex_start_that_is_shorter_than_the_job_is_remarked():
    short = train(capacity=[{"flex_start": {"max_run_duration": "12h"}}])
    line = only(remarks(on_gke(**short)), "workloads[1].deadline")
    assert "1d is more than the 12h" in line
    assert remarks(on_gke(**short, workloads__1__deadline="12h")) == []


def test_a_service_on_flex_start_is_remarked_to_end():
    line = only(remarks(on_gke(slices__1__capacity=[FLEX])), "workloads[2].slice")
    assert "end after 7d" in line


# What a rung may say


@pytest.mark.parametrize(
    ("rung", "where", "what"),
    [
        ({"spot": {}, "flex_start": {}}, "capacity[0]", "spot and flex_start at once"),
        ({"spot": {}, "reservation": {"name": "r"}}, "capacity[0]", "spot and reservation at once"),
        ({}, "capacity[0]", "names no capacity"),
        ({"spot": None}, "capacity[0]", "names no capacity"),
        ({"spots": {}}, "capacity[0].spots", "did you mean spot?"),
        ("spot", "capacity[0]", "'spot' is not a mapping"),
        ({"reservation": {}}, "capacity[0].reservation.name", "is missing"),
        ({"reservation": {"name": "R"}}, "capacity[0].reservation.name", "cannot name"),
        (
            {"reservation": {"name": "r", "sub_block": "s"}},
            "capacity[0].reservation.sub_block",
            "is a part of no block",
        ),
        ({"spot": {"zone": "us-east5"}}, "capacity[0].spot.zone", "is no zone"),
        (
            {"flex_start": {"max_run_duration": "8d"}},
            "capacity[0].flex_start.max_run_duration",
            "use 10m to 7d",
        ),
        (
            {"flex_start": {"max_run_duration": "9m"}},
            "capacity[0].flex_start.max_run_duration",
            "use 10m to 7d",
        ),
        (
            {"flex_start": {"max_run_duration": 3600}},
            "capacity[0].flex_start.max_run_duration",
            "a number and a unit",
        ),
        (
            {"flex_start": {"max_run": "1d"}},
            "capacity[0].flex_start.max_run",
            "did you mean max_run_duration?",
        ),
    ],
)
def test_a_rung_names_one_kind_of_capacity_and_its_terms(rung, where, what):
    assert what in only(faults(on_gke(**train(capacity=[rung]))), f"slices[0].{where}")


@pytest.mark.parametrize("run", ["10m", "7d", "600s"])
def test_a_run_of_flex_start_lasts_from_ten_minutes_to_seven_days(run):
    stack = on_gke(**train(capacity=[{"flex_start": {"max_run_duration": run}}]))
    assert faults(stack) == []


def test_an_empty_ladder_is_refused():
    assert "a list is empty; write one or more" in only(
        faults(on_gke(**train(capacity=[]))), "slices[0].capacity"
    )
