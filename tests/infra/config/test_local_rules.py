"""The local stack says what it cannot do, and what it leaves out of a declaration for GKE."""

import pytest

from tests.infra.config.stack import GKE, changed, faults, only, remarks


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"workloads__2__model": {"hub": "Qwen/Qwen3-4B"}}, "workloads[2].model"),
        (
            {"workloads__3": {"name": "by-hand", "kind": "cluster", "slice": "train"}},
            "workloads[3].kind",
        ),
    ],
)
def test_the_local_stack_refuses_what_it_cannot_do_yet(changes, where):
    only(faults(changed(**changes)), where)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (
            {"slices__0__fallback": [{"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}]},
            "slices[0].fallback",
        ),
        ({"workloads__2__redis": {"address": "redis://redis:6379"}}, "workloads[2].redis"),
    ],
)
def test_the_local_stack_says_what_it_leaves_out(changes, where):
    only(remarks(changed(**changes)), where)


def test_the_local_stack_takes_a_declaration_of_gke_without_a_word():
    stack = changed(
        team=GKE["team"],
        images=GKE["images"],
        slices__0__capacity=[{"spot": {}}, {"on_demand": {}}],
        workloads__1__deadline="2d",
    )
    assert faults(stack) == []
    assert remarks(stack) == []
