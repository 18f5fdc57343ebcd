"""A cluster without operator, for tests of pods: real API server, scheduler, names, services."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubernetes import client

from tests.cluster.waiting import wait
from tools.cluster.control_plane import HOST, ControlPlane
from tools.cluster.dns import Dns
from tools.cluster.images import Image, ray_image
from tools.cluster.kubelet import Kubelet
from tools.cluster.network import Network
from tools.cluster.services import Address, Services

Manifest = dict[str, Any]

NAMESPACE = "default"
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "110"}
TPU_LABELS = {
    "node.kubernetes.io/instance-type": "ct6e-standard-4t",
    "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
    "cloud.google.com/gke-tpu-topology": "4x4",
}


def node(name: str, labels: dict[str, str] | None = None, **room: str) -> Manifest:
    resources = {**ROOM, **room}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"name": name, **(labels or {})}},
        "status": {"capacity": resources, "allocatable": resources},
    }


NODES = [node("one"), node("two"), node("tpu", TPU_LABELS, **{"google.com/tpu": "4"})]


@dataclass
class Machine:
    """What a test has: the API, and a way to restart the agent."""

    plane: ControlPlane
    network: Network
    dns: Dns
    folder: Path
    core: Any = field(init=False)
    """CoreV1Api, of whose answers each test says what must be in them."""

    def __post_init__(self) -> None:
        self.core = client.CoreV1Api(self.plane.api)

    def kubelet(self) -> Kubelet:
        return Kubelet(
            self.plane.api,
            self.network,
            {"host": Image(), "python": ray_image()},
            NODES,
            self.folder,
            resolv_conf=self.dns.resolv_conf,
            certificate=self.plane.authority.issue("kubelet", hosts=[HOST]),
            authority=self.plane.authority.path,
        )

    def pod(self, name: str, *containers: Manifest, **spec: Any) -> Callable[[], Any]:
        """Creates a pod; the result reads it."""
        body = {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "host:1", **one} for one in containers],
                **spec,
            },
        }
        for index, container in enumerate(body["spec"]["containers"][1:], start=2):
            container["name"] = f"main-{index}"
        self.core.create_namespaced_pod(NAMESPACE, body)
        return lambda: self.core.read_namespaced_pod(name, NAMESPACE)

    def log(self, name: str, container: str = "main", **options: Any) -> str:
        answer = self.core.read_namespaced_pod_log(
            name, NAMESPACE, container=container, _preload_content=False, **options
        )
        return answer.data.decode()

    def log_file(self, name: str) -> Path:
        return self.folder / "pods" / NAMESPACE / name / "main.log"

    def end_of(self, read: Callable[[], Any], limit_s: float = 60) -> Any:
        """The pod, when it is over."""
        wait(lambda: read().status.phase in ("Succeeded", "Failed"), limit_s)
        return read()

    def delete(self, name: str, grace_s: int | None = None) -> float:
        """Until it is gone; how long it took."""
        began_s = time.monotonic()
        self.core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=grace_s)
        wait(lambda: name not in self.names())
        return time.monotonic() - began_s

    def names(self) -> set[str]:
        return {pod.metadata.name for pod in self.core.list_namespaced_pod(NAMESPACE).items}

    def events(self, name: str) -> list[tuple[str, str]]:
        found = self.core.list_namespaced_event(
            NAMESPACE, field_selector=f"involvedObject.name={name}"
        )
        return [(event.reason, event.message) for event in found.items]


def is_running(read: Callable[[], Any]) -> Any:
    """The pod, once it runs."""
    return wait(lambda: (pod := read()).status.phase == "Running" and pod)


def sleeping(seconds: int) -> list[psutil.Process]:
    """The processes `sleep SECONDS`: a number that a test has for itself."""
    command = ["sleep", str(seconds)]
    return [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == command]


def sh(script: str, **more: Any) -> Manifest:
    return {"command": ["sh", "-c", script], **more}


def python(script: str, **more: Any) -> Manifest:
    return {"image": "python", "command": ["python", "-c", script], **more}


@contextmanager
def started(folder: Path) -> Iterator[Machine]:
    with ExitStack() as running:
        network = running.enter_context(Network.claim())
        plane = running.enter_context(ControlPlane(folder, network.service_cidr))
        dns = running.enter_context(Dns(network, plane.kubeconfig, folder))
        running.enter_context(Services(plane.api, network, Address(HOST, plane.port)))
        yield Machine(plane, network, dns, folder)


@pytest.fixture(scope="session")
def bare(programs, tmp_path_factory) -> Iterator[Machine]:  # noqa: ARG001 - built before it starts
    """No agent runs yet: whoever tests it starts it."""
    with started(tmp_path_factory.mktemp("pods")) as machine:
        yield machine


@pytest.fixture(scope="module")
def machine(bare: Machine) -> Iterator[Machine]:
    """Its agent runs; pods of the last module are gone."""
    with bare.kubelet():
        yield bare
        bare.core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=1)
        wait(lambda: not bare.names())
