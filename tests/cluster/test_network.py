"""Bridges of this machine: claimed, used, and swept after a crash."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cluster.pods import sleeping
from tests.cluster.waiting import wait
from tests.tools.project import REPOSITORY
from tools.cluster.network import Network, NetworkError, ip


def bridges():
    return {link["ifname"] for link in json.loads(ip("-json", "link", "show", "type", "bridge"))}


def test_instances_have_networks_of_their_own():
    with Network.claim() as one, Network.claim() as two:
        assert one.number != two.number
        assert {one.bridge, two.bridge} <= bridges()
        assert one.gateway == f"10.244.{one.number}.1"
        assert one.service_cidr == f"10.245.{one.number}.0/24"
    assert not {one.bridge, two.bridge} & bridges()


def test_an_address_is_given_once_and_comes_back_last():
    network = Network(1)
    all_of_them = [network.take() for _ in range(253)]
    assert all_of_them[0] == "10.244.1.2"  # the first is the bridge's
    assert all_of_them[-1] == "10.244.1.254"
    assert len(set(all_of_them)) == 253
    with pytest.raises(NetworkError, match="rt1: all 253 addresses are in use"):
        network.take()
    network.give_back("10.244.1.7")
    assert network.take() == "10.244.1.7"


def test_an_address_that_was_given_back_rests_before_it_is_given_again():
    network = Network(1)
    network.give_back(network.take())
    assert network.take() == "10.244.1.3"


CRASHES = """
import asyncio, sys, tempfile, time
from pathlib import Path
from tools.cluster.kubelet.process import Process, Sandbox
from tools.cluster.kubelet.root import Root
from tools.cluster.network import Network

async def main():
    folder = Path(sys.argv[1])
    (folder / "shm").mkdir()
    (folder / "stage").mkdir()
    with Network.claim() as network:
        sandbox = await Sandbox.start(network, "victim", [folder / "shm"])
        root = Root(folder / "stage", {}, [], folder / "shm", "/")
        command = ["sh", "-c", "sleep 87654 & sleep 87654"]
        await Process.start(sandbox, root, command, {"PATH": "/usr/bin:/bin"}, log=folder / "log")
        print(network.bridge, sandbox.pid, flush=True)
        time.sleep(60)

asyncio.run(main())
"""


def test_nothing_is_left_of_an_agent_that_was_killed(tmp_path):
    with Network.claim():  # so that the victim has another number than the next claim
        victim = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CRASHES), tmp_path],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert victim.stdout
        bridge, holder = victim.stdout.readline().split()
        wait(lambda: len(sleeping(87654)) == 2)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    wait(lambda: not sleeping(87654))
    wait(lambda: not Path(f"/proc/{holder}").exists())
    assert bridge in bridges()
    with Network.claim() as network:
        assert network.bridge != bridge
        assert bridge not in bridges()


def test_the_network_of_a_living_instance_is_not_swept():
    with Network.claim() as one:
        before = json.loads(ip("-json", "link", "show", one.bridge))[0]["address"]
        with Network.claim():
            assert json.loads(ip("-json", "link", "show", one.bridge))[0]["address"] == before
