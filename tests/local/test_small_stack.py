"""A stack without workloads: what happens to its slices and processes."""

import contextlib
import os
import signal
import socket

import httpx
import psutil
import pytest

from infra.local import processes
from infra.local.ray_api import RayApi
from tests.local.local_stack import LocalStack, one_chip, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_every_socket_listens_on_loopback_alone(small: LocalStack) -> None:
    listening = [
        connection.laddr.ip
        for process in small.processes()
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) > 5
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def test_a_host_looks_to_ray_as_on_gke(small: LocalStack) -> None:
    """Ray derives the labels by its own code, from the variables that GKE's webhook sets."""
    reply = httpx.get(f"{small.outputs()['dashboard_url']}/api/v0/nodes?detail=true").json()
    nodes = reply["data"]["result"]["result"]
    [tpu] = [node for node in nodes if "TPU" in node["resources_total"]]
    labels = {key.removeprefix("ray.io/"): value for key, value in tpu["labels"].items()}
    assert labels.pop("node-id")
    assert labels == {
        "accelerator-type": "TPU-V6E",
        "node-group": "tiny",
        "tpu-pod-type": "v6e-1",
        "tpu-slice-name": "tiny-0",
        "tpu-topology": "1x1",
        "tpu-worker-id": "0",
    }
    resources = tpu["resources_total"]
    assert (resources["TPU"], resources["TPU-v6e-1-head"]) == (1, 1)


def test_a_driver_started_by_hand_reaches_the_cluster(small: LocalStack) -> None:
    """It listens on loopback alone, where Ray's own drivers do not look for it."""
    program = (
        "from workloads import entrypoint; entrypoint.connect(); import ray; print(ray.nodes())"
    )
    address = small.state()["local-head"]["address"]
    done = small.run("timeout", "60", "python", "-c", program, RAY_ADDRESS=address)
    assert done.code == 0, done.output
    assert "'ray.io/tpu-slice-name': 'tiny-0'" in done.output


def test_a_second_up_changes_nothing(small: LocalStack) -> None:
    done = small.up("--refresh", "--expect-no-changes")
    assert done.code == 0, done.output


def test_the_count_of_a_slice_touches_the_new_copy_alone(small: LocalStack) -> None:
    before = {process.pid for process in small.processes()}
    small.declare(slices=[one_chip(count=2)])
    done = small.up()
    assert (done.code, done.counts["created"], done.counts["unchanged"]) == (0, 1, 5), done.output
    assert before <= {process.pid for process in small.processes()}
    small.declare(slices=[one_chip(count=1)])
    done = small.up()
    assert (done.code, done.counts["deleted"]) == (0, 1), done.output
    assert before == {process.pid for process in small.processes()}


def test_a_slice_of_another_generation_and_several_hosts_is_simulated(small: LocalStack) -> None:
    cube = {"name": "cube", "machine_type": "ct5p-hightpu-4t", "topology": "2x2x2"}
    small.declare(slices=[one_chip(count=1), cube])
    done = small.up()
    assert (done.code, done.counts["created"]) == (0, 1), done.output
    assert RayApi(small.outputs()["dashboard_url"]).worker_ids("cube-0") == [0, 1]
    small.declare(slices=[one_chip(count=1)])
    assert small.up().counts["deleted"] == 1


def test_a_killed_raylet_is_seen_by_refresh_and_mended_by_up(small: LocalStack) -> None:
    [raylet] = small.state()["local-tiny-0"]["pids"]["raylets"]
    os.kill(int(raylet), signal.SIGKILL)
    assert small.pulumi("refresh", "--yes").counts["deleted"] == 1
    done = small.up()
    assert (done.code, done.counts["created"]) == (0, 1), done.output
    [mended] = small.state()["local-tiny-0"]["pids"]["raylets"]
    assert psutil.Process(int(mended)).name() == "raylet"


def test_a_killed_head_is_seen_by_refresh_and_mended_by_up(small: LocalStack) -> None:
    for process in processes.find(f"{small.mark}/head"):
        with contextlib.suppress(psutil.NoSuchProcess):  # one goes with another
            process.kill()
    assert small.pulumi("refresh", "--yes").counts["deleted"] >= 1
    done = small.up()
    assert done.code == 0, done.output
    assert RayApi(small.outputs()["dashboard_url"]).worker_ids("tiny-0") == [0]


def test_every_process_that_was_started_is_recorded(small: LocalStack) -> None:
    state = small.state()
    recorded = {
        int(pid) for name in ("local-head", "local-tiny-0") for pid in state[name]["pids"]["all"]
    }
    assert {process.pid for process in small.processes()} <= recorded


def test_a_taken_port_is_named_with_its_holder_and_its_key(small: LocalStack) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        small.declare(cluster={"mode": "local", "dashboard_port": port}, slices=[one_chip(count=1)])
        done = small.up()
    small.declare(slices=[one_chip(count=1)])
    assert done.code != 0
    assert f"raytpu:cluster.dashboard_port: port {port} is in use by process {os.getpid()}" in (
        done.output
    )
    assert "Traceback" not in done.output
    assert small.up().code == 0


def test_what_a_killed_up_had_started_is_ended_by_destroy(small: LocalStack) -> None:
    small.declare(slices=[one_chip(count=3)])
    up = small.start("pulumi", "up", "--stack", small.name, "--yes", "--skip-preview")
    wait_until(lambda: processes.find(f"{small.mark}/tiny-2"), 120, "the third host to be started")
    [engine] = [p for p in psutil.Process(up.pid).children() if p.name() == "pulumi"]
    engine.kill()
    up.wait(60)
    done = small.destroy()
    assert done.code == 0, done.output
    assert small.processes() == []
    small.declare(slices=[one_chip(count=1)])
    assert small.up().code == 0


def test_ctrl_c_ends_up_soon_and_in_order(small: LocalStack) -> None:
    small.declare(
        slices=[one_chip(count=1)],
        workloads=[{"name": "corpus", "kind": "data", "vocab_size": 1024}],
    )
    up = small.start("pulumi", "up", "--stack", small.name, "--yes", "--skip-preview")
    wait_until(lambda: _running_jobs(small), 120, "the job to run")
    os.killpg(up.pid, signal.SIGINT)
    output, _ = up.communicate(timeout=90)
    assert up.returncode != 0
    assert "interrupted; run `up` again to go on" in output
    wait_until(lambda: not _running_jobs(small), 30, "the job to be stopped")
    small.declare(slices=[one_chip(count=1)])
    assert small.up().code == 0


def _running_jobs(stack: LocalStack) -> list[str]:
    jobs = httpx.get(f"{stack.outputs()['dashboard_url']}/api/jobs/").json()
    return [job["submission_id"] for job in jobs if job["status"] in ("PENDING", "RUNNING")]
