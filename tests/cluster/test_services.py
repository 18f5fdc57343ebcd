"""Addresses of services: a table of routes by hand, and real connections through a real server."""

import contextlib
import os
import socket
import ssl
import threading
import time
import urllib.request
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes import client

from tools.cluster.network import Network, ip
from tools.cluster.services import Address, Services, cluster_addresses, routes

API = Address("127.0.0.1", 20443)
LIMIT_S = 30


def service(name, address, *ports, namespace="research"):
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"clusterIP": address, "ports": list(ports)},
    }


def endpoint_slice(name, *endpoints, ports, namespace="research"):
    return {
        "metadata": {"namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": [host], "conditions": state} for host, state in endpoints],
        "ports": ports,
    }


READY, STARTING = {"ready": True}, {"ready": False}
DASHBOARD = {"name": "dashboard", "port": 8265, "protocol": "TCP"}
HTTP = {"name": "http", "port": 8000, "protocol": "TCP"}


def test_each_port_leads_to_the_ready_endpoints_of_its_name():
    services = [
        service("head", "10.245.1.7", {**DASHBOARD, "port": 80}, HTTP),
        service("other", "10.245.1.8", HTTP),
        service("head", "10.245.1.9", HTTP, namespace="others"),
    ]
    slices = [
        endpoint_slice("head", ("10.244.1.3", READY), ("10.244.1.2", READY), ports=[DASHBOARD]),
        endpoint_slice("head", ("10.244.1.4", READY), ("10.244.1.5", STARTING), ports=[DASHBOARD]),
        endpoint_slice("other", ("10.244.1.6", STARTING), ports=[HTTP]),
    ]
    assert routes(services, slices, API) == {
        Address("10.245.1.7", 80): (
            Address("10.244.1.2", 8265),
            Address("10.244.1.3", 8265),
            Address("10.244.1.4", 8265),
        ),
    }


def test_the_service_of_the_api_server_leads_to_it():
    port = {"name": "https", "port": 443, "targetPort": 6443}
    kubernetes = service("kubernetes", "10.245.1.1", port, namespace="default")
    assert routes([kubernetes], [], API) == {Address("10.245.1.1", 443): (API,)}


def test_headless_services_and_other_names_have_no_address():
    external = {"metadata": {"namespace": "a", "name": "b"}, "spec": {"type": "ExternalName"}}
    services = [service("head", "None", HTTP), external, service("chat", "10.245.1.2", HTTP)]
    assert cluster_addresses(services) == {"10.245.1.2"}
    assert (
        routes(services, [endpoint_slice("head", ("10.244.1.2", READY), ports=[HTTP])], API) == {}
    )


@pytest.fixture(scope="module")
def network():
    assert os.geteuid() == 0, "bridges need root"
    with Network.claim() as network:
        yield network


@pytest.fixture(scope="module")
def services(control_plane, network):
    server = urlsplit(control_plane.server)
    with Services(control_plane.api, network, Address(server.hostname, server.port)) as services:
        yield services


@pytest.fixture
def core(control_plane, services):  # noqa: ARG001 # which brings to life what is made
    return client.CoreV1Api(control_plane.api)


@pytest.fixture
def namespace(core):
    name = f"services-{uuid.uuid4().hex[:6]}"
    core.create_namespace({"metadata": {"name": name}})
    yield name
    core.delete_namespace(name)


class Echo:
    """Answers with its name and all that it was sent, once the sender has ended."""

    def __init__(self, name, host):
        self._name = name
        self._server = socket.create_server((host, 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._server.accept()
                with connection:
                    connection.sendall(self._name.encode() + read_all(connection))

    def close(self):
        self._server.close()


def ask(address, port, data=b""):
    with socket.create_connection((address, port), timeout=5) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def read_all(connection):
    return b"".join(iter(lambda: connection.recv(65536), b""))


def until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(OSError):
            if condition():
                return
        assert time.monotonic() < deadline, f"{what} not within {LIMIT_S} s"
        time.sleep(0.05)


def refuses(address, port):
    try:
        ask(address, port)
    except ConnectionRefusedError:
        return True
    return False


def make_service(core, namespace, name):
    manifest = {"metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": 80}]}}
    return core.create_namespaced_service(namespace, manifest).spec.cluster_ip


def set_endpoints(api, namespace, name, endpoints):
    """A slice for each, since their ports differ; in place of those before."""
    slices = client.DiscoveryV1Api(api)
    slices.delete_collection_namespaced_endpoint_slice(namespace)
    for index, (host, port, ready) in enumerate(endpoints):
        manifest: Any = {
            "metadata": {
                "name": f"{name}-{index}",
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [host], "conditions": {"ready": ready}}],
            "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        }
        slices.create_namespaced_endpoint_slice(namespace, manifest)


@pytest.fixture
def echoes(network):
    made = [Echo(name, network.gateway) for name in ("one:", "two:")]
    yield made
    for echo in made:
        echo.close()


def test_connections_reach_every_ready_endpoint_and_come_back_whole(
    control_plane, core, network, namespace, echoes
):
    address = make_service(core, namespace, "chat")
    one, two = ((network.gateway, echo.port) for echo in echoes)
    set_endpoints(control_plane.api, namespace, "chat", [(*one, True), (*two, True)])
    data = os.urandom(3_000_000)
    until(lambda: {ask(address, 80)[:4] for _ in range(20)} == {b"one:", b"two:"}, "both")
    assert ask(address, 80, data)[4:] == data

    set_endpoints(control_plane.api, namespace, "chat", [(*one, False), (*two, True)])
    until(lambda: {ask(address, 80) for _ in range(20)} == {b"two:"}, "only the ready one")

    set_endpoints(control_plane.api, namespace, "chat", [(*one, False)])
    until(lambda: refuses(address, 80), "a refused connection")


def test_the_address_of_a_deleted_service_is_nobodys(core, network, namespace):
    def is_there():
        return f"{address}/32" in ip("-brief", "addr", "show", network.bridge)

    address = make_service(core, namespace, "chat")
    until(is_there, "the address")
    core.delete_namespaced_service("chat", namespace)
    until(lambda: not is_there(), "the address's end")


def test_what_changes_while_the_api_server_restarts_is_seen(
    control_plane, core, network, namespace, echoes
):
    address = make_service(core, namespace, "chat")
    set_endpoints(control_plane.api, namespace, "chat", [(network.gateway, echoes[0].port, True)])
    until(lambda: ask(address, 80) == b"one:", "the first endpoint")
    control_plane.restart_api_server()
    assert ask(address, 80) == b"one:"
    set_endpoints(control_plane.api, namespace, "chat", [(network.gateway, echoes[1].port, True)])
    until(lambda: ask(address, 80) == b"two:", "the second endpoint")


def test_the_api_server_is_reached_as_pods_reach_it(control_plane, core):
    address = core.read_namespaced_service("kubernetes", "default").spec.cluster_ip
    trusted = ssl.create_default_context(cafile=str(control_plane.authority.path))

    def answer():
        with urllib.request.urlopen(
            f"https://{address}/version", context=trusted, timeout=5
        ) as got:
            return b"gitVersion" in got.read()

    until(answer, "the API server by its service")
