"""Lives of pods on the real API server, bound by the real scheduler, run by the agent."""

import time
from typing import Any

import pytest
from kubernetes import client

from tests.cluster.pods import NAMESPACE, is_running, python, sh, sleeping
from tests.cluster.waiting import wait

FOREVER = "while true; do sleep 0.1; done"
SHARED = [{"name": "shared", "mountPath": "/shared"}]


def terminated(status):
    return status.state.terminated


def waits_for(read, reason) -> Any:
    """The status of the one container, when it waits for this reason."""

    def status():
        (found,) = read().status.container_statuses or [None]
        waiting = found and found.state.waiting
        return found if waiting and waiting.reason == reason else None

    return wait(status)


def test_a_job_runs_to_its_end_and_its_output_can_be_read(machine):
    body = {
        "metadata": {"name": "count"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "host", **sh("seq 3; exit 0")}],
                }
            }
        },
    }
    jobs: Any = client.BatchV1Api(machine.plane.api)
    jobs.create_namespaced_job(NAMESPACE, body)
    wait(lambda: jobs.read_namespaced_job("count", NAMESPACE).status.succeeded)
    (name,) = [one for one in machine.names() if one.startswith("count-")]
    assert machine.log(name) == "1\n2\n3\n"
    assert machine.log(name, tail_lines=1) == "3\n"


def test_a_program_that_fails_is_started_again_after_growing_pauses(machine):
    read = machine.pod("crash", sh("echo no; exit 7"), restartPolicy="Always")
    status = waits_for(read, "CrashLoopBackOff")
    assert status.last_state.terminated.exit_code == 7
    assert status.restart_count == 1  # the first restart comes at once
    assert read().status.phase == "Running"
    assert machine.log("crash", previous=True) == "no\n"
    assert ("BackOff", "back-off 10s restarting failed container=main") in machine.events("crash")


def test_an_exit_code_is_the_programs_own(machine):
    (status,) = machine.end_of(machine.pod("seven", sh("exit 7"))).status.container_statuses
    assert (terminated(status).exit_code, terminated(status).reason) == (7, "Error")


def test_a_program_that_is_not_there_is_named(machine):
    (status,) = machine.end_of(machine.pod("lost", {"command": ["frob"]})).status.container_statuses
    assert (terminated(status).exit_code, terminated(status).reason) == (128, "StartError")
    assert "frob" in terminated(status).message


def test_an_unknown_image_is_refused(machine):
    read = machine.pod("strange", {"image": "example.com:5000/strange:1"})
    message = waits_for(read, "ImagePullBackOff").state.waiting.message
    assert "example.com:5000/strange:1" in message
    assert read().status.phase == "Pending"


def test_what_is_not_done_here_is_said_and_not_run(machine):
    volume = {"name": "v", "hostPath": {"path": "/"}}
    grpc = sh("sleep 99", livenessProbe={"grpc": {"port": 1}})
    read = machine.pod("odd", grpc, volumes=[volume])
    message = waits_for(read, "CreateContainerConfigError").state.waiting.message
    assert 'volume "v" is a hostPath' in message
    assert 'livenessProbe of "main" has grpc' in message


def test_who_ignores_the_signal_is_killed_when_the_grace_is_over(machine):
    script = f"trap 'echo asked' TERM; {FOREVER}"
    read = machine.pod("stubborn", sh(script), terminationGracePeriodSeconds=3)
    is_running(read)
    with machine.log_file("stubborn").open() as log:
        assert 3 <= machine.delete("stubborn") < 20
        assert log.read().strip() == "asked"


def test_who_obeys_the_signal_goes_at_once_after_its_hook(machine):
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook > /proc/1/fd/1"]}}}
    script = f"trap 'echo asked; exit 0' TERM; {FOREVER}"
    read = machine.pod("polite", sh(script, lifecycle=hook), terminationGracePeriodSeconds=60)
    is_running(read)
    with machine.log_file("polite").open() as log:
        assert machine.delete("polite") < 30
        assert log.read().split() == ["hook", "asked"]


def test_a_pod_deleted_by_force_leaves_no_process(machine):
    read = machine.pod("forced", sh("trap '' TERM; sleep 98765"), terminationGracePeriodSeconds=600)
    is_running(read)
    assert sleeping(98765)
    machine.delete("forced", grace_s=0)
    wait(lambda: not sleeping(98765), 20)


def test_init_containers_run_in_order_and_side_cars_beside(machine):
    def says(name, text, **more):
        return {"name": name, "image": "host", "volumeMounts": SHARED, **sh(text, **more)}

    started = {"exec": {"command": ["grep", "side", "/shared/log"]}}
    sidecar = says(
        "side",
        f"trap 'echo ends; exit 0' TERM; echo side >> /shared/log; {FOREVER}",
        startupProbe={**started, "periodSeconds": 1},
    )
    read = machine.pod(
        "ordered",
        sh("echo main >> /shared/log; cat /shared/log", volumeMounts=SHARED),
        initContainers=[
            says("first", "sleep 0.5; echo first >> /shared/log"),
            {**sidecar, "restartPolicy": "Always"},
            says("second", "echo second >> /shared/log"),
        ],
        volumes=[{"name": "shared", "emptyDir": {}}],
        terminationGracePeriodSeconds=20,
    )
    pod = machine.end_of(read)
    assert machine.log("ordered").split() == ["first", "side", "second", "main"]
    assert pod.status.phase == "Succeeded"  # the side-car does not keep it
    wait(lambda: machine.log("ordered", "side") == "ends\n")  # it is told to when the pod is over


def test_a_failing_init_container_fails_the_pod(machine):
    first = {"name": "first", "image": "host", **sh("exit 3")}
    pod = machine.end_of(machine.pod("uninitialized", sh("true"), initContainers=[first]))
    assert pod.status.phase == "Failed"
    assert pod.status.init_container_statuses[0].state.terminated.exit_code == 3
    assert pod.status.container_statuses[0].state.waiting.reason == "PodInitializing"


def test_only_a_ready_pod_is_an_endpoint_of_its_service(machine):
    wait_for_knock = """
import pathlib, socket
socket.create_server(("", 7000)).accept()
pathlib.Path("/root/ready").touch()
socket.create_server(("", 7001)).accept()
"""
    probe = {"exec": {"command": ["test", "-f", "/root/ready"]}, "periodSeconds": 1}
    read = machine.pod("slow", python(wait_for_knock, readinessProbe=probe))
    port = {"port": 80, "targetPort": 7001}
    body = {"metadata": {"name": "slow"}, "spec": {"selector": {"app": "slow"}, "ports": [port]}}
    machine.core.create_namespaced_service(NAMESPACE, body)
    slices: Any = client.DiscoveryV1Api(machine.plane.api)

    def ready():
        found = slices.list_namespaced_endpoint_slice(
            NAMESPACE, label_selector="kubernetes.io/service-name=slow"
        )
        return [end.conditions.ready for one in found.items for end in one.endpoints or []]

    wait(lambda: ready() == [False])
    machine.pod("knock", python(f"import socket; socket.create_connection(('{ip(read)}', 7000))"))
    wait(lambda: ready() == [True])


def ip(read):
    return wait(lambda: read().status.pod_ip)


def restarted(statuses):
    return statuses and statuses[0].restart_count and statuses


@pytest.mark.parametrize("kind", ["livenessProbe", "startupProbe"])
def test_a_container_whose_probe_fails_is_restarted(machine, kind):
    probe = {"tcpSocket": {"port": 7002}, "periodSeconds": 1, "failureThreshold": 2}
    name = kind.lower()
    read = machine.pod(name, sh("exec sleep 600", **{kind: probe}), restartPolicy="Always")
    (status,) = wait(lambda: restarted(read().status.container_statuses))
    assert status.last_state.terminated.exit_code == 137
    assert any(reason == "Unhealthy" for reason, _ in machine.events(name))


def test_a_log_can_be_followed_to_its_end(machine):
    read = machine.pod("talks", sh("echo one; sleep 2; echo two"))
    is_running(read)
    began_s = time.monotonic()
    assert machine.log("talks", follow=True) == "one\ntwo\n"
    assert time.monotonic() - began_s < 30


def test_a_pod_has_no_more_time_than_its_deadline(machine):
    pod = machine.end_of(machine.pod("late", sh("exec sleep 600"), activeDeadlineSeconds=2))
    assert (pod.status.phase, pod.status.reason) == ("Failed", "DeadlineExceeded")


def test_a_container_with_chips_is_a_tpu_host(machine):
    chips = {"resources": {"limits": {"google.com/tpu": "4"}}}
    read = machine.pod("chips", sh("echo $TPU_TOPOLOGY $JAX_PLATFORMS $XLA_FLAGS", **chips))
    assert machine.end_of(read).spec.node_name == "tpu"
    assert machine.log("chips") == "4x4 cpu --xla_force_host_platform_device_count=4\n"


def test_what_a_container_says_last_is_in_its_status(machine):
    own = machine.pod("own", sh("echo why > /dev/termination-log; exit 1"))
    fallback = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    log = machine.pod("log", sh("echo because; exit 1", **fallback))
    for read, text in ((own, "why\n"), (log, "because")):
        (status,) = machine.end_of(read).status.container_statuses
        assert terminated(status).message == text
