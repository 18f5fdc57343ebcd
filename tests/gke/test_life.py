"""Each stack from an empty project to nothing again, in the real engine, without credentials."""

import re

import pytest

from tests.gke.journey import LIMIT_S, PROTECTED, STACKS

pytestmark = pytest.mark.timeout(LIMIT_S)


def stacks(*names):
    return pytest.mark.parametrize("journey", names, indirect=True)


@stacks(*STACKS)
def test_the_first_preview_of_an_empty_project_only_creates(journey):
    assert journey.first.code == 0, journey.first.output
    assert journey.first.counts.keys() == {"create"}


@stacks(*STACKS)
def test_up_makes_what_the_preview_said(journey):
    assert journey.up.code == 0, journey.up.output
    assert journey.up.counts == {"created": journey.first.counts["create"]}


@stacks("dev", "staging", "prod")
def test_nothing_is_asked_of_kubernetes_before_a_node_can_run_its_operator(journey):
    said = journey.up.output
    assert said.index("NodePool gke-cpu created") < said.index("+  kubernetes:")


@stacks(*STACKS)
def test_a_stack_that_is_up_has_nothing_to_change(journey):
    assert journey.again.code == 0, journey.again.output


@stacks(*STACKS)
def test_what_google_fills_in_is_no_change(journey):
    """The stand-in's pools come back with all that GKE adds, some of which would replace them."""
    assert journey.refreshed.code == 0, journey.refreshed.output


@stacks(*STACKS)
def test_in_the_end_nothing_is_left(journey):
    last = journey.way_out[-1] if journey.way_out else journey.destroyed
    assert last.code == 0, last.output
    assert not journey.stack.cloud.google.made
    assert not journey.stack.cloud.kubernetes.made


@stacks("dev", PROTECTED)
def test_destroy_ends_workloads_then_tpu_pools_then_the_rest(journey):
    order = re.findall(r"- +\S+:(\w+) (\S+) deleted", journey.destroyed.output)
    kinds = [kind for kind, _ in order]
    tpus = [i for i, (kind, name) in enumerate(order) if kind == "NodePool" and "cpu" not in name]
    assert tpus
    last_of_ray = max(i for i, kind in enumerate(kinds) if kind in ("RayService", "RayJob"))
    [cpu] = [i for i, (kind, name) in enumerate(order) if (kind, name) == ("NodePool", "gke-cpu")]
    assert last_of_ray < min(tpus) <= max(tpus) < cpu


@stacks(PROTECTED)
def test_a_protected_cluster_stays_without_pools(journey):
    assert journey.destroyed.code != 0
    assert "deletion_protection is set to true. Set it to false" in journey.destroyed.output
    deleted = re.findall(r"- +\S+:NodePool (\S+) deleted", journey.destroyed.output)
    assert {*deleted} == {"gke-cpu", "gke-train-0", "gke-train-1", "gke-chat-0"}


@stacks(PROTECTED)
def test_its_protection_goes_without_bringing_pools_back(journey):
    unprotected, destroyed = journey.way_out
    assert unprotected.code == 0, unprotected.output
    assert "NodePool" not in unprotected.output
    assert destroyed.code == 0, destroyed.output
