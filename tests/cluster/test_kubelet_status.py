"""Phases and conditions of pods, against tables by hand after Kubernetes' own tests of getPhase."""

import pytest

from tools.cluster.kubelet.status import (
    ContainerState,
    PodState,
    adopted,
    exit_code,
    pod_phase,
    pod_status,
    running,
    terminated,
    waiting,
)

NOW = "2026-11-30T03:00:00Z"
RUNS, WAITS = running(NOW), waiting("ContainerCreating")
GOOD, BAD = terminated(0, NOW), terminated(1, NOW)
BACK_OFF = waiting("CrashLoopBackOff")


def container(state, last=None, *, init=False, ready=False, started=False, policy=None, name="c"):
    manifest = {"name": name, "image": "i", **({"restartPolicy": policy} if policy else {})}
    return ContainerState(
        manifest, init=init, state=state, last_state=last or {}, ready=ready, started=started
    )


def main(*states):
    return [container(*state) if isinstance(state, tuple) else container(state) for state in states]


@pytest.mark.parametrize(
    ("policy", "containers", "expected"),
    [
        ("Always", main(WAITS, WAITS), "Pending"),
        ("Always", main(RUNS, RUNS), "Running"),
        ("Always", main(RUNS, GOOD), "Running"),
        ("Always", main(RUNS, WAITS), "Pending"),
        ("Always", main(GOOD, GOOD), "Running"),  # they start again
        ("Always", main(BAD, BAD), "Running"),
        ("Always", main((BACK_OFF, BAD)), "Running"),
        ("OnFailure", main(GOOD, GOOD), "Succeeded"),
        ("OnFailure", main(BAD, BAD), "Running"),
        ("OnFailure", main(GOOD, BAD), "Running"),
        ("OnFailure", main((BACK_OFF, BAD), GOOD), "Running"),
        ("Never", main(GOOD, GOOD), "Succeeded"),
        ("Never", main(BAD, BAD), "Failed"),
        ("Never", main(GOOD, BAD), "Failed"),
        ("Never", main(RUNS, BAD), "Running"),
        ("Never", main(RUNS, WAITS), "Pending"),
    ],
)
def test_the_phase_follows_from_containers_and_restart_policy(policy, containers, expected):
    assert pod_phase(policy, [], containers) == expected


@pytest.mark.parametrize(
    ("policy", "init", "expected"),
    [
        ("Always", [container(RUNS, init=True)], "Pending"),
        ("Always", [container(BAD, init=True)], "Pending"),
        ("Never", [container(BAD, init=True)], "Failed"),
        ("Never", [container(GOOD, init=True)], "Pending"),  # the others are still to come
        ("Always", [container(RUNS, init=True, policy="Always")], "Pending"),
        ("Never", [container(BAD, init=True, policy="Always")], "Pending"),  # it starts again
    ],
)
def test_a_pod_is_pending_until_it_is_initialized(policy, init, expected):
    assert pod_phase(policy, init, main(WAITS)) == expected


@pytest.mark.parametrize("state", [BACK_OFF, WAITS, BAD])
def test_a_side_car_that_fails_does_not_take_a_pod_back_to_its_start(state):
    sidecar = container(state, BAD, init=True, policy="Always")
    assert pod_phase("Always", [sidecar], main(RUNS)) == "Running"
    assert pod_phase("Never", [sidecar], main(GOOD)) == "Succeeded"


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        (main(GOOD), "Succeeded"),
        (main(GOOD, BAD), "Failed"),
        (main((BACK_OFF, GOOD)), "Succeeded"),
        (main(WAITS), "Failed"),
    ],
)
def test_a_pod_that_ends_has_a_final_phase_even_if_it_would_restart(containers, expected):
    assert pod_phase("Always", [], containers, ending=True) == expected


def pod(**spec):
    return {"metadata": {"generation": 3}, "spec": {"restartPolicy": "Always", **spec}}


def state(*containers):
    return PodState(containers, "10.244.1.4", sandbox=True, host_ip="127.0.0.1", started=NOW)


def conditions(manifest, *containers):
    found = pod_status(manifest, state(*containers))["conditions"]
    return {one["type"]: one for one in found}


def test_a_pod_is_ready_when_all_its_containers_are():
    ready, unready = container(RUNS, ready=True), container(RUNS, name="slow")
    assert conditions(pod(), ready)["Ready"]["status"] == "True"
    found = conditions(pod(), ready, unready)["Ready"]
    assert (found["status"], found["reason"]) == ("False", "ContainersNotReady")
    assert found["message"] == "containers with unready status: [slow]"


def test_a_side_car_counts_for_readiness_and_another_init_container_does_not():
    done = container(GOOD, init=True)
    sidecar = container(RUNS, init=True, policy="Always", started=True, name="proxy")
    found = conditions(pod(), done, sidecar, container(RUNS, ready=True))
    assert found["Initialized"]["status"] == "True"
    assert found["Ready"]["message"] == "containers with unready status: [proxy]"


def test_readiness_gates_are_waited_for():
    gated = pod(readinessGates=[{"conditionType": "example.com/open"}])
    ready = container(RUNS, ready=True)
    assert conditions(gated, ready)["Ready"]["reason"] == "ReadinessGatesNotReady"
    gated["status"] = {"conditions": [{"type": "example.com/open", "status": "True"}]}
    assert conditions(gated, ready)["Ready"]["status"] == "True"


def test_a_condition_keeps_the_time_of_its_last_change():
    manifest, runs = pod(), container(RUNS, ready=True)
    old = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    manifest["status"] = {"conditions": [old]}
    assert conditions(manifest, runs)["Ready"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    runs.ready = False
    assert conditions(manifest, runs)["Ready"]["lastTransitionTime"] > "2026-01-01T00:00:00Z"


def test_containers_of_an_agent_that_is_gone_were_killed():
    before = {"state": RUNS, "restartCount": 2, "ready": True, "containerID": "process://7"}
    found = adopted({"name": "c", "image": "i"}, init=False, before=before)
    assert found.state["terminated"]["exitCode"] == 137
    assert found.state["terminated"]["reason"] == "ContainerStatusUnknown"
    assert (found.restarts, found.ready) == (2, False)


@pytest.mark.parametrize(("returned", "expected"), [(0, 0), (7, 7), (-9, 137), (-15, 143)])
def test_a_signal_is_an_exit_code_above_128(returned, expected):
    assert exit_code(returned) == expected
