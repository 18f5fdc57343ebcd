"""What a preview says of a change to a stack that is up: pools come and go only as they must."""

import re

import pytest

from tests.gke.journey import LIMIT_S

pytestmark = pytest.mark.timeout(LIMIT_S)
prod = pytest.mark.parametrize("journey", ["prod"], indirect=True)


def google(done):
    """Resources of Google's, by the engine's sign for what would be done with them."""
    assert done.code == 0, done.output
    rows = re.findall(r"^ (\+|~|-|\+-) +gcp:\S+ (\S+) ", done.output, re.MULTILINE)
    return {name: sign for sign, name in rows}


@prod
def test_another_copy_of_a_slice_only_creates_its_pool(journey):
    assert google(journey.what_if["another copy of train"]) == {"gke-train-2": "+"}


@prod
def test_another_slice_leaves_the_others_alone(journey):
    done = journey.what_if["another slice"]
    assert google(done) == {"gke-eval-0": "+"}
    assert "replace" not in done.counts
    assert "delete" not in done.counts


@prod
def test_another_topology_replaces_the_pools_of_that_slice_and_no_other(journey):
    changed = google(journey.what_if["another topology of train"])
    assert changed == {"gke-train-0": "+-", "gke-train-1": "+-"}


@prod
def test_another_machine_replaces_the_pool_of_that_slice_and_no_other(journey):
    assert google(journey.what_if["another machine of chat"]) == {"gke-chat-0": "+-"}
