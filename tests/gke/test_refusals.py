"""What is refused, when, and what the user is told."""

import pytest

from infra.cli.check import check
from tests.gke.journey import prepare

PREEMPTED = {"spot": {}, "reservation": {"name": "r1"}}


@pytest.fixture
def existing(tmp_path):
    stack = prepare("existing", tmp_path)
    with stack.cloud:
        yield stack


def test_a_faulty_stack_is_refused_before_anything_is_registered(tmp_path):
    stack = prepare("prod", tmp_path)
    train, chat = stack.declared["raytpu:slices"]
    with stack.cloud:
        stack.declare(slices=[{**train, "topology": "5x5"}, {**chat, "capacity": [PREEMPTED]}])
        done = stack.up()
        told = [str(problem) for problem in check(str(stack.file)).problems]
    assert len(told) >= 2
    assert done.code != 0
    assert all(line in done.output for line in told), done.output
    assert not stack.cloud.google.done
    assert "gcp:" not in done.output


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (
            "RayService",
            "RayService/chat was not ready to serve with its newest cluster within 4500",
        ),
        ("RayJob", "RayJob/corpus was not finished within 86520"),
    ],
)
def test_what_never_starts_ends_in_an_error_that_names_it(existing, kind, told):
    existing.cloud.kubernetes.stuck.add(kind)
    done = existing.up()
    assert done.code != 0
    assert f"error: {told} seconds: `kubectl --namespace research describe" in done.output


def test_without_a_cluster_nothing_is_made_in_it(existing):
    existing.cloud.kubernetes.others.clear()
    done = existing.up()
    assert done.code != 0
    assert "configured Kubernetes cluster is unreachable: others.example" in done.output
    assert not existing.cloud.kubernetes.made
