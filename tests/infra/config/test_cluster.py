"""What `raytpu:cluster` may say in each mode, and how a team and its images are named."""

import pytest

from infra.config import AutopilotCluster, ExistingCluster, GkeCluster
from infra.config.cluster import OWN_LABELS
from infra.gke.names import labels
from tests.infra.config.stack import (
    changed,
    faults,
    on_autopilot,
    on_existing,
    on_gke,
    only,
    read,
)


def test_each_mode_has_a_form_of_its_own():
    assert isinstance(read(on_gke()).cluster, GkeCluster)
    assert isinstance(read(on_autopilot()).cluster, AutopilotCluster)
    assert isinstance(read(on_existing()).cluster, ExistingCluster)


def test_a_cluster_says_little_and_has_the_rest_by_default():
    cluster = read(on_gke()).cluster
    assert isinstance(cluster, GkeCluster)
    assert (cluster.release_channel, cluster.deletion_protection) == ("regular", None)
    assert (cluster.cpu_pool.machine_type, cluster.cpu_pool.max_nodes) == ("n2-standard-8", 4)
    assert cluster.network.nodes is None
    assert cluster.maintenance.window is None


@pytest.mark.parametrize("made", [on_gke, on_autopilot])
@pytest.mark.parametrize("key", ["project", "location", "zones"])
def test_a_cluster_to_be_made_has_a_place(made, key):
    stack = made()
    del stack["cluster"][key]
    assert faults(stack)[0] == f"raytpu:cluster.{key}: is missing; add {key}"


def test_a_cluster_of_others_has_a_bucket():
    stack = on_existing()
    del stack["cluster"]["storage"]
    assert "is missing" in only(faults(stack), "cluster.storage")


@pytest.mark.parametrize("storage", ["/shared", "s3://bucket", "gs://", "gs://A_bucket", "bucket"])
def test_a_node_local_folder_is_no_storage_of_a_cluster(storage):
    """All hosts must see one folder, or a checkpoint of several hosts is lost."""
    line = only(faults(on_existing(cluster__storage=storage)), "cluster.storage")
    assert "is no bucket that all hosts can reach" in line


@pytest.mark.parametrize(
    ("made", "key", "way_out"),
    [
        (on_gke, "storage", "the keys are project, location, zones"),
        (on_gke, "zone", "did you mean zones?"),
        (on_gke, "serve_port", "the keys are project"),
        (on_autopilot, "cpu_pool", "the keys are project"),
        (on_existing, "project", "the keys are mode, storage, kubeconfig"),
        (on_existing, "contexts", "did you mean context?"),
        (changed, "project", "the keys are mode, storage, serve_port"),
    ],
)
def test_a_key_of_another_mode_is_unknown_and_the_modes_own_are_listed(made, key, way_out):
    stack = made()
    stack["cluster"][key] = "x"
    assert way_out in only(faults(stack), f"cluster.{key}")


@pytest.mark.parametrize(
    ("path", "key", "way_out"),
    [
        ("cluster__network", "node", "did you mean nodes?"),
        ("cluster__maintenance", "windows", "did you mean window?"),
        ("cluster__cpu_pool", "machine", "did you mean machine_type?"),
        ("workloads__2__model", "path", "the keys are hub"),
    ],
)
def test_a_key_inside_of_a_mode_is_told_by_what_is_there(path, key, way_out):
    stack = on_gke(**{path: {"hub": "a/b", key: "x"} if path.endswith("model") else {key: "x"}})
    where = path.replace("workloads__2", "workloads[2]").replace("__", ".")
    assert way_out in only(faults(stack), f"{where}.{key}")


def test_a_key_that_looks_like_a_tag_is_a_key():
    for key in ("<gke>", "<any>", "<x>"):
        stack = on_gke(slices__0={**on_gke()["slices"][0], key: 1})
        assert "there is no such key" in only(faults(stack), f"slices[0].{key}")


def test_a_fault_elsewhere_does_not_hide_the_rules_of_a_mode():
    stack = on_gke(
        environment="Dev",
        team__name="Research",
        slices__0__capacity=[{"spot": {"zone": "us-b1-a"}}],
    )
    assert [line.partition(": ")[0] for line in faults(stack)] == [
        "raytpu:environment",
        "raytpu:team.name",
        "raytpu:slices[0].capacity[0].spot.zone",
    ]


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("project", "Acme", "is no project id"),
        ("project", "acme", "is no project id"),
        ("location", "us", "is no region or zone"),
        ("location", "us-east5-b-c", "is no region or zone"),
        ("release_channel", "extended", "'rapid', 'regular' or 'stable'"),
        ("deletion_protection", "yes", "is not true or false"),
        ("labels", {"Team": "a"}, "has a key or value that Google refuses"),
        ("labels", {"team": "A B"}, "has a key or value that Google refuses"),
        ("labels", {"team": "a", "slice": "b"}, "sets slice and team, as the stack does itself"),
    ],
)
def test_a_value_that_google_refuses_is_refused_here(key, value, what):
    assert what in only(faults(on_gke(**{f"cluster__{key}": value})), f"cluster.{key}")


def test_a_cluster_without_zones_is_refused_once():
    assert "a list is empty" in only(faults(on_gke(cluster__zones=[])), "cluster.zones")
    assert "is no zone" in only(faults(on_gke(cluster__zones=["us-east5"])), "cluster.zones[0]")


@pytest.mark.parametrize(
    ("pool", "key", "what"),
    [
        ({"min_nodes": 5}, "max_nodes", "4 is less than min_nodes, 5"),
        ({"min_nodes": 5, "max_nodes": 4}, "max_nodes", "4 is less than min_nodes, 5"),
        ({"min_nodes": 0}, "min_nodes", "0 is too small"),
        ({"machine_type": "ct6e-standard-4t"}, "machine_type", "without accelerators"),
        ({"machine_type": "a2-highgpu-1g"}, "machine_type", "without accelerators"),
        ({"machine_type": "g2-standard-8"}, "machine_type", "without accelerators"),
    ],
)
def test_a_pool_without_tpu_holds_heads_and_data_jobs(pool, key, what):
    lines = faults(on_gke(cluster__cpu_pool=pool))
    assert what in only(lines, f"cluster.cpu_pool.{key}")


@pytest.mark.parametrize(
    ("window", "key", "what"),
    [
        ({"days": ["SA"], "start": "02:00", "hours": 11}, "hours", "use 12 or more"),
        ({"days": ["SA"], "start": "02:00"}, "hours", "6 on 1 day a week is less than"),
        ({"days": ["SA", "SU"], "start": "02:00", "hours": 5}, "hours", "use 6 or more"),
        ({"days": ["SA"], "start": "02:00", "hours": 3}, "hours", "use 4 or more"),
        ({"days": ["SA", "SU"], "start": "2:00"}, "start", "is no time of day"),
        ({"days": ["SA", "SU"], "start": "24:00"}, "start", "is no time of day"),
        ({"days": [], "start": "02:00"}, "days", "is empty"),
        ({"days": ["SAT"], "start": "02:00"}, "days[0]", "is not one of the choices"),
    ],
)
def test_a_maintenance_window_leaves_gke_its_hours(window, key, what):
    stack = on_gke(cluster__maintenance={"window": window})
    assert what in only(faults(stack), f"cluster.maintenance.window.{key}")


@pytest.mark.parametrize(
    "window",
    [
        {"days": ["SA"], "start": "02:00", "hours": 12},
        {"days": ["SA", "SU"], "start": "02:00"},
        {"days": ["MO", "TU", "WE"], "start": "23:59", "hours": 4},
    ],
)
def test_a_window_of_12_hours_a_week_is_enough(window):
    assert faults(on_gke(cluster__maintenance={"window": window})) == []


@pytest.mark.parametrize(
    ("start", "end", "where"),
    [
        ("2026-12-20T00:00:00Z", "2027-03-20T00:00:00Z", None),
        ("2026-12-20T00:00:00Z", "2027-03-20T00:00:01Z", "end"),
        ("2026-12-20T00:00:00Z", "2026-12-20T00:00:00Z", "end"),
        ("2026-12-32T00:00:00Z", "2027-01-05T00:00:00Z", "start"),
        ("2026-12-20", "2027-01-05T00:00:00Z", "start"),
        ("2026-12-20T00:00:00Z", "2027-01-05T00:00:00+01:00", "end"),
    ],
)
def test_an_exclusion_ends_within_90_days(start, end, where):
    exclusion = {"name": "launch", "start": start, "end": end}
    lines = faults(on_gke(cluster__maintenance={"exclusions": [exclusion]}))
    if where is None:
        assert lines == []
    else:
        only(lines, f"cluster.maintenance.exclusions[0].{where}")


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("cost_center", "ML Research", "as a label's value"),
        ("members", ["research@acme.example", "everyone"], "is no address"),
        ("members", ["user:research@acme.example"], "is no address"),
        ("max_chips", 0, "is too small"),
        ("namespace", "Team_A", "cannot name a Kubernetes object"),
        ("namespace", "kube-system", "is a namespace of the cluster itself"),
        ("name", "default", "is a namespace of the cluster itself"),
    ],
)
def test_a_team_has_a_name_a_bill_and_addresses(key, value, what):
    (line,) = faults(on_gke(**{f"team__{key}": value}))
    assert line.startswith(f"raytpu:team.{key}")
    assert what in line


def test_autopilot_lies_in_a_region():
    stack = on_autopilot(cluster__location="us-east5-b")
    line = only(faults(stack), "cluster.location")
    assert line.endswith(
        "'us-east5-b' is a zone, and Autopilot clusters lie in a region; write us-east5"
    )


def test_every_label_of_the_stack_is_its_own():
    config = read(on_gke())
    assert {*labels(config), "slice"} == OWN_LABELS


def test_two_exclusions_of_one_name_would_be_one_to_gke():
    first = {"name": "launch", "start": "2026-12-20T00:00:00Z", "end": "2027-01-05T00:00:00Z"}
    second = {"name": "audit", "start": "2027-03-01T00:00:00Z", "end": "2027-03-08T00:00:00Z"}
    assert faults(on_gke(cluster__maintenance={"exclusions": [first, second]})) == []
    twice = [first, {**second, "name": "launch"}]
    lines = faults(on_gke(cluster__maintenance={"exclusions": twice}))
    assert "names launch twice" in only(lines, "cluster.maintenance.exclusions")


@pytest.mark.parametrize("storage", ["gs://acme/$(id)", "gs://acme/a b", "gs://acme/a;b"])
def test_storage_is_an_address_that_the_command_of_a_job_can_carry(storage):
    line = only(faults(on_existing(cluster__storage=storage)), "cluster.storage")
    assert "has characters that no command line keeps" in line
