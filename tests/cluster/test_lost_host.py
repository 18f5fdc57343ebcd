"""A worker pod deleted while its slice trains: the slice is replaced whole, the run goes on."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes.config import new_client_from_config

from tests.cluster.real_stack import RealStack, finished
from tests.cluster.seen import ApiServerError, items, request, request_text, wait_for
from tests.tools.project import Done

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

PODS = "/api/v1/namespaces/research/pods"
WORKERS = f"{PODS}?labelSelector=ray.io/group=train"
DRIVER = f"{PODS}?labelSelector=job-name=pretrain"
STEPS, INTERVAL = 60, 10
LIMIT_S = 600
HOSTS = 4
"""Of the v6e 4x4 that the stack declares."""


@dataclass(frozen=True)
class Loss:
    up: Done
    saved: int
    """The last step that was saved for sure when the pod was deleted."""
    resumed: list[int]
    """After which steps the run went on: anew each time that hosts went while it came up."""
    before: set[str]
    after: set[str]
    """Pods of the slice, by their ids."""
    log: str
    destroyed: Done


@pytest.fixture(scope="module")
def loss(cluster, provider, tmp_path_factory) -> Loss:  # noqa: ARG001 - built before
    kubeconfig = cluster.ready()["kubeconfig"]
    api = new_client_from_config(kubeconfig)
    stack = RealStack(tmp_path_factory.mktemp("lost"), kubeconfig, limit_s=LIMIT_S)
    corpus, pretrain, _ = stack.declared["workloads"]
    long = {**pretrain, "steps": STEPS, "checkpoint_every": INTERVAL, "log_every": INTERVAL}
    stack.declare(workloads=[corpus, {**long, "wait_for": "finish"}])
    log = ""

    up = stack.start_up()

    def told(words: str) -> bool:
        nonlocal log
        log = driver_log(api) or log
        assert up.poll() is None or words in log, finished(up, LIMIT_S).output
        return words in log

    # What is told of step 30 comes after the save of step 20 was waited for.
    wait_for("step 30", lambda: told(f"step 30/{STEPS}"), LIMIT_S)
    before = items(api, WORKERS)
    request(api, "DELETE", f"{PODS}/{before[0]['metadata']['name']}")
    wait_for("the run goes on", lambda: told("resuming after step"), LIMIT_S)
    wait_for("the last steps", lambda: told(f"step {STEPS - INTERVAL}/{STEPS}"), LIMIT_S)
    after = ids(items(api, WORKERS))
    wait_for("the last step", lambda: told(f"step {STEPS}/{STEPS}"), LIMIT_S)
    done = finished(up, LIMIT_S)
    resumed = [int(step) for step in re.findall(r"resuming after step (\d+)", log)]
    return Loss(done, 20, resumed, ids(before), after, log, stack.destroy())


def ids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def driver_log(api: Any) -> str:
    """Of the pod that submitted the job; nothing before it runs and after it is gone."""
    for pod in items(api, DRIVER):
        try:
            return request_text(api, f"{PODS}/{pod['metadata']['name']}/log")
        except ApiServerError:
            return ""
    return ""


def test_a_run_that_lost_a_host_ends_well(loss):
    assert loss.up.code == 0, loss.up.output
    assert f"step {STEPS}/{STEPS}" in loss.log


def test_no_host_of_the_old_slice_trains_on(loss):
    assert len(loss.before) == len(loss.after) == HOSTS
    assert not loss.before & loss.after


def test_what_was_saved_is_not_trained_again(loss):
    assert loss.saved <= min(loss.resumed)
    assert loss.resumed == sorted(loss.resumed)


def test_nothing_is_left_of_it(loss):
    assert loss.destroyed.code == 0, loss.destroyed.output
