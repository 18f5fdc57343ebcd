"""Nodes that go and come back, and an API server that restarts."""

import socket
import ssl

import pytest

from tests.cluster.pods import NODES, is_running, sh, sleeping
from tests.cluster.waiting import wait
from tools.cluster.kubelet import agent


def on(name):
    return {"nodeSelector": {"name": name}}


def node_is_ready(machine, name):
    conditions = machine.core.read_node(name).status.conditions or []
    return any((one.type, one.status) == ("Ready", "True") for one in conditions)


def test_nodes_are_ready_and_offer_what_was_declared(machine):
    for declared in NODES:
        name = declared["metadata"]["name"]
        assert node_is_ready(machine, name)
        offered = machine.core.read_node(name).status.allocatable
        assert offered == declared["status"]["allocatable"]


def test_a_lost_machine_takes_its_pods_with_it_and_no_others(machine):
    lost = machine.pod("lost", sh("trap '' TERM; sleep 76543"), **on("one"))
    kept = machine.pod("kept", sh("exec sleep 76544"), **on("two"))
    is_running(lost)
    is_running(kept)
    machine.core.delete_node("one")
    wait(lambda: not sleeping(76543), 20)
    assert sleeping(76544)
    assert lost().status.phase == "Running"  # nobody is left to say otherwise
    machine.core.create_node(next(n for n in NODES if n["metadata"]["name"] == "one"))
    wait(lambda: node_is_ready(machine, "one"))
    is_running(machine.pod("again", sh("exec sleep 76545"), **on("one")))
    assert not sleeping(76543)
    machine.delete("lost", grace_s=0)


def test_pods_outlive_a_restart_of_the_api_server(machine):
    before = machine.pod("before", sh("exec sleep 76546"), **on("two"))
    is_running(before)
    (process,) = sleeping(76546)
    machine.plane.restart_api_server()
    after = machine.pod("after", sh("echo served"))
    machine.end_of(after)
    assert process.is_running()
    assert before().status.container_statuses[0].restart_count == 0
    assert machine.delete("before") < 30


def test_logs_are_for_the_api_server_alone(machine):
    context = ssl.create_default_context(cafile=str(machine.plane.authority.path))
    port = machine.core.read_node("two").status.daemon_endpoints.kubelet_endpoint.port
    with (
        socket.create_connection((agent.ADDRESS, port)) as plain,
        context.wrap_socket(plain, server_hostname=agent.ADDRESS) as stranger,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        ask(stranger, b"GET /containerLogs/default/x/main HTTP/1.0\r\n\r\n")


def ask(stranger, text):
    stranger.sendall(text)
    if not stranger.recv(1):
        raise ConnectionError
