"""Two replicas on the halves of one simulated v6e 4x4, found by Ray's own search."""

import sys
from dataclasses import replace

import pytest

from tests.workloads.serve.replicas import (
    PROMPTS,
    connected,
    crowd,
    deployed,
    free_chips,
    reservations,
    right_answers,
)
from tests.workloads.serve.test_hosts import CONTRACT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

WHOLE = replace(CONTRACT, slices=1, topology="4x4", hosts=4, pod_type="v6e-16")
HALF = replace(CONTRACT, slices=2)  # a 2x4


@pytest.fixture(scope="module")
def tpu(tmp_path_factory):
    with connected(tmp_path_factory, WHOLE, 1, sys.modules[__name__]) as tpu:
        yield tpu


def test_two_replicas_share_a_slice_by_halves_and_answer_right(tpu, tiny_folder, devices):
    expected = right_answers(tiny_folder, devices)
    with deployed(tiny_folder, HALF, parent_topology="4x4") as client:
        assert crowd(client) == [expected[prompt] for prompt in PROMPTS * 2]
        ids = [node.node_id for node in tpu.nodes]
        # Hosts 0 and 1 are neighbours, and so are 2 and 3: libtpu numbers them row by row.
        halves = [set(ids[:2]), set(ids[2:])]
        assert sorted(reservations().values(), key=sorted) == sorted(halves, key=sorted)
        assert free_chips() == 0
