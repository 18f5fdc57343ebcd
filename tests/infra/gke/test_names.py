import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.gke import names
from tests.infra.gke.stacks import stack

stack_names = st.from_regex(r"[a-z][a-z0-9-]{0,60}[a-z0-9]", fullmatch=True)


@given(stack_names)
def test_every_name_keeps_googles_limits(name: str):
    config = stack(name=name)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", names.stack_name(config))
    assert re.fullmatch(r"[a-z][-a-z0-9]{4,28}[a-z0-9]", names.node_account_id(config))
    for role in ("data", "checkpoints", "cache"):
        bucket = names.bucket_name(config, role)
        assert re.fullmatch(r"[a-z0-9][-a-z0-9]{1,61}[a-z0-9]", bucket)


@given(stack_names, stack_names)
def test_two_stacks_of_a_project_never_share_a_name(one: str, other: str):
    first, second = stack(name=one), stack(name=other)
    same = one == other
    assert (names.stack_name(first) == names.stack_name(second)) is same
    assert (names.node_account_id(first) == names.node_account_id(second)) is same
    assert (names.bucket_name(first, "data") == names.bucket_name(second, "data")) is same


def test_a_short_name_is_left_as_it_is():
    assert names.bounded("raytpu-dev-nodes", 30) == "raytpu-dev-nodes"


def test_a_long_name_is_cut_and_told_apart_by_its_end():
    ends = {names.bounded("a" * 30 + end, 30) for end in ("x", "y")}
    assert {len(name) for name in ends} == {30}
    assert len(ends) == 2


@pytest.mark.parametrize(
    ("location", "region"),
    [
        ("us-east5", "us-east5"),
        ("us-east5-b", "us-east5"),
        ("us-central1-ai1a", "us-central1"),
        ("northamerica-northeast1-c", "northamerica-northeast1"),
    ],
)
def test_a_location_has_its_region(location: str, region: str):
    config = stack(cluster={"location": location, "zones": [f"{region}-b"]})
    assert names.google_cluster(config).region == region


def test_the_namespace_is_the_teams_own_unless_it_says_otherwise():
    team = {"name": "research", "cost_center": "ml"}
    assert names.namespace(stack(team=team)) == "research"
    assert names.namespace(stack(team={**team, "namespace": "ml-jobs"})) == "ml-jobs"
