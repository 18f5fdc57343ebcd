"""Names as a pod looks them up: by its own resolver, with its own resolv.conf."""

import os
import shlex
import subprocess
import time
import uuid

import pytest
from kubernetes import client

from tools.cluster.dns import Dns
from tools.cluster.network import Network

LIMIT_S = 30


@pytest.fixture(scope="module")
def network():
    assert os.geteuid() == 0, "bridges need root"
    with Network.claim() as network:
        yield network


@pytest.fixture(scope="module")
def dns(control_plane, network, tmp_path_factory):
    with Dns(network, control_plane.kubeconfig, tmp_path_factory.mktemp("dns")) as dns:
        yield dns


@pytest.fixture
def core(control_plane):
    return client.CoreV1Api(control_plane.api)


@pytest.fixture
def namespace(core):
    name = f"dns-{uuid.uuid4().hex[:6]}"
    core.create_namespace({"metadata": {"name": name}})
    yield name
    core.delete_namespace(name)


@pytest.fixture
def look_up(dns, tmp_path):
    """The IPv4 addresses of a name, as a pod of `namespace` finds them; none if there is none."""

    def found(name, namespace):
        own = tmp_path / "resolv.conf"
        own.write_text(dns.resolv_conf(namespace))
        script = f"mount --bind {own} /etc/resolv.conf && exec getent ahostsv4 {shlex.quote(name)}"
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert done.returncode in (0, 2), done.stderr  # 2: no such name
        return {line.split()[0] for line in done.stdout.splitlines()}

    return found


def until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} not within {LIMIT_S} s"
        time.sleep(0.1)


def make_host(core, namespace, index):
    """A pod of a slice as the webhook names it, which has an address and is not ready yet."""
    pod = {
        "metadata": {"name": f"worker-{index}", "labels": {"ray.io/cluster": "pretrain"}},
        "spec": {
            "hostname": f"train-0-{index}",
            "subdomain": "pretrain-headless",
            "containers": [{"name": "ray-worker", "image": "ray"}],
        },
    }
    core.create_namespaced_pod(namespace, pod)
    address = f"10.244.77.{10 + index}"
    status = {"phase": "Pending", "podIP": address, "podIPs": [{"ip": address}]}
    core.patch_namespaced_pod_status(f"worker-{index}", namespace, {"status": status})
    return address


def test_the_hosts_of_a_slice_find_each_other_before_they_are_ready(core, namespace, look_up):
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"ray.io/cluster": "pretrain"},
        "ports": [{"name": "gcs", "port": 6379}],
    }
    manifest = {"metadata": {"name": "pretrain-headless"}, "spec": spec}
    core.create_namespaced_service(namespace, manifest)
    addresses = [make_host(core, namespace, index) for index in range(2)]

    until(lambda: look_up("pretrain-headless", namespace) == {*addresses}, "both hosts")
    for index, address in enumerate(addresses):
        short = f"train-0-{index}.pretrain-headless"
        assert look_up(short, namespace) == {address}
        assert look_up(short, "default") == set()
        assert look_up(f"{short}.{namespace}.svc.cluster.local", "default") == {address}

    core.delete_namespaced_pod("worker-1", namespace, grace_period_seconds=0)
    until(lambda: not look_up("train-0-1.pretrain-headless", namespace), "the end of a name")
    assert look_up("train-0-0.pretrain-headless", namespace) == {addresses[0]}


def test_a_service_has_its_cluster_address_in_every_namespace(core, namespace, look_up):
    manifest = {"metadata": {"name": "chat"}, "spec": {"ports": [{"port": 8000}]}}
    address = core.create_namespaced_service(namespace, manifest).spec.cluster_ip
    until(lambda: look_up("chat", namespace) == {address}, "the service")
    assert look_up(f"chat.{namespace}", "default") == {address}
    assert look_up(f"chat.{namespace}.svc.cluster.local", "default") == {address}
    assert look_up("chat", "default") == set()


def test_the_api_server_has_the_name_that_clients_in_pods_use(core, look_up):
    address = core.read_namespaced_service("kubernetes", "default").spec.cluster_ip
    assert look_up("kubernetes.default.svc", "research") == {address}


def test_a_name_outside_of_the_cluster_is_soon_known_not_to_exist(look_up):
    started = time.monotonic()
    assert look_up("metadata.google.internal", "research") == set()
    assert time.monotonic() - started < 3
