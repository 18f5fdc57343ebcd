"""A cluster starts whole, ends whole whatever ends it, and says in a line why it does not start."""

import json
import subprocess
import sys

import psutil
import pytest

from tests.cluster.waiting import running, wait
from tests.tools.project import REPOSITORY
from tools.cluster.instance import Instance, InstanceError


def command(*words):
    return subprocess.run(
        [sys.executable, "-m", "tools.cluster", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def bridges():
    done = subprocess.run(
        ["ip", "-json", "link", "show", "type", "bridge"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {link["ifname"] for link in json.loads(done.stdout or "[]")}


@pytest.mark.usefixtures("programs")
def test_a_killed_cluster_takes_its_programs_pods_and_networks_with_it(tmp_path):
    before = bridges()
    instance = Instance(tmp_path / "cluster")
    instance.start("existing", outlives_us=False)
    assert len(running(f"{tmp_path}")) >= 6
    operators = [one for one in running("kuberay-operator") if within(one, instance.process())]
    assert operators
    process = instance.process()
    assert process
    process.kill()
    wait(lambda: not running(str(tmp_path)))
    wait(lambda: not any(one.is_running() for one in operators))
    assert instance.process() is None
    assert instance.stop() is False
    assert bridges() <= before
    assert not (tmp_path / "cluster/secrets").exists()


def within(process, ancestor):
    return ancestor in process.parents()


def test_a_second_up_says_that_it_is_up(cluster):
    done = command("up", "--folder", str(cluster.folder))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("It is up")
    assert f"KUBECONFIG={cluster.ready()['kubeconfig']}" in done.stdout
    assert command("status", "--folder", str(cluster.folder)).stdout.startswith("up")


def test_a_cluster_that_is_up_is_not_started_over(cluster):
    with pytest.raises(InstanceError, match="a cluster is up; end it first"):
        cluster.start("existing", outlives_us=False)


def test_an_api_server_is_restarted_when_asked_to(cluster):
    def server():
        mine = [one for one in running(str(cluster.folder)) if one.name() == "kube-apiserver"]
        return mine[0].pid if mine else None

    before = server()
    assert before
    cluster.restart_api_server()
    wait(lambda: server() not in (None, before))
    wait(lambda: "the API server was restarted" in cluster.log.read_text())
    assert cluster.process()


def test_an_api_server_that_ends_by_itself_ends_the_cluster_and_is_named(tmp_path, programs):  # noqa: ARG001
    instance = Instance(tmp_path / "cluster")
    instance.start("existing", outlives_us=False)
    [server] = [one for one in running(f"{tmp_path}") if one.name() == "kube-apiserver"]
    server.kill()
    wait(lambda: instance.process() is None)
    last = instance.log.read_text().splitlines()[-1]
    assert last.startswith("cluster: kube-apiserver ended with code -9; ")
    assert not running(str(tmp_path))


def test_a_stack_with_faults_is_named_in_one_line(tmp_path):
    done = command("up", "--folder", str(tmp_path / "c"), "--stack", "no-such-stack")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "no-such-stack" in line
    assert "Traceback" not in line


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    done = command("up", "--folder", str(tmp_path))
    assert done.returncode == 1
    assert "name another folder" in done.stderr
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_without_root_it_says_why_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(InstanceError, match=r"^a cluster's pods .* only root .*run it as root"):
        Instance(tmp_path).start("existing", outlives_us=False)
    assert list(tmp_path.iterdir()) == []


def test_down_without_a_cluster_changes_nothing(tmp_path):
    done = command("down", "--folder", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "It was not up.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_another_process_has_now_is_not_ended(tmp_path):
    """Process numbers are used again; the time of the start tells them apart."""
    us = psutil.Process()
    record = {"pid": us.pid, "started": us.create_time() - 60}
    (tmp_path / "supervisor.json").write_text(json.dumps(record))
    assert Instance(tmp_path).process() is None
    assert Instance(tmp_path).stop() is False
