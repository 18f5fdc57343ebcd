"""Process 1 of a cluster: starts all parts in order, watches them, ends them in reverse.

    python -m tools.cluster.supervisor FOLDER STACK

Started by tools.cluster.instance, in namespaces of its own. SIGTERM ends it, SIGHUP restarts the
API server. When all is ready, FOLDER/ready.json says how to use it.
"""

import dataclasses
import json
import logging
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from infra.cli.check import check
from infra.config import ExistingCluster, StackConfig
from tools.cluster import operator
from tools.cluster.bucket import Buckets
from tools.cluster.control_plane import HOST, ROOT, ControlPlane
from tools.cluster.dns import Dns
from tools.cluster.images import Image, program_image, ray_image, repository
from tools.cluster.kubelet import Kubelet
from tools.cluster.kubelet.agent import ADDRESS, KubeletError
from tools.cluster.network import Network, NetworkError
from tools.cluster.nodes import stack_nodes
from tools.cluster.operator import OperatorError
from tools.cluster.program import Program, ProgramError
from tools.cluster.services import Address, Services, ServicesError
from tools.cluster.webhook import Webhook
from tools.go.build import BuildError, find

WATCH_S = 0.5
THREADS = {"kubelet", "services", "webhook"}
"""Parts that run in this process."""

logger = logging.getLogger("cluster")


class SupervisorError(Exception):
    """The cluster cannot be what was asked for. One line that ends with the way out."""


FAULTS = (
    ApiException,
    BuildError,
    httpx.HTTPError,
    HTTPError,
    KubeletError,
    NetworkError,
    OperatorError,
    OSError,
    ProgramError,
    ServicesError,
    SupervisorError,
)


def declared(stack: str) -> StackConfig:
    """A stack without fault. Raises SupervisorError."""
    report = check(stack)
    if report.config is None:
        raise SupervisorError(f"stack {stack} has faults; see `raytpu check {stack}`")
    return report.config


def images(config: StackConfig, buckets: Buckets) -> dict[str, Image]:
    """What the containers of a stack and of the operator are, by repository."""
    known = {operator.IMAGE: program_image(find(operator.NAME, ROOT))}
    if config.images:
        ray = ray_image()
        environment = {**ray.environment, **buckets.environment()}
        known[repository(config.images.ray)] = dataclasses.replace(ray, environment=environment)
    return known


def bucket(config: StackConfig) -> str:
    """The name of the one that a stack writes to."""
    if not isinstance(config.cluster, ExistingCluster):
        raise SupervisorError(
            f"stack {config.stack} makes its own cluster; take one of mode existing"
        )
    return urlsplit(config.cluster.storage).netloc


def run(folder: Path, stack: str) -> None:
    """Runs until a signal or the end of a part. Raises one of FAULTS."""
    config = declared(stack)
    with ExitStack() as running:
        network = running.enter_context(Network.claim())
        plane = running.enter_context(ControlPlane(folder, network.service_cidr))
        operator.install_definitions(plane.api)
        dns = running.enter_context(Dns(network, plane.kubeconfig, folder))
        running.enter_context(Services(plane.api, network, Address(HOST, plane.port)))
        running.enter_context(Webhook(plane.api, folder / "webhook"))
        buckets = running.enter_context(Buckets(folder, network.gateway, [bucket(config)]))
        running.enter_context(
            Kubelet(
                plane.api,
                network,
                images(config, buckets),
                stack_nodes(config),
                folder,
                resolv_conf=dns.resolv_conf,
                csi=buckets.csi,
                certificate=plane.authority.issue("kubelet", hosts=[ADDRESS]),
                authority=plane.authority.path,
            )
        )
        operator.install_operator(plane.api)
        kubeconfig = str(plane.kubeconfig)
        _write_ready(folder, {"stack": stack, "kubeconfig": kubeconfig, "storage": buckets.url})
        _watch(plane, [*plane.programs.values(), dns.program, buckets.program])


def _watch(plane: ControlPlane, programs: list[Program]) -> None:
    """Raises when a part ends by itself; restarts the API server when asked to."""
    asked: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: asked.append(number))
    while True:
        for program in programs:
            program.check()
        if dead := THREADS - {thread.name for thread in threading.enumerate()}:
            raise SupervisorError(f"{', '.join(dead)} ended by itself; the lines above say why")
        if asked:
            asked.clear()
            plane.restart_api_server()
            logger.info("the API server was restarted")
        time.sleep(WATCH_S)


def _write_ready(folder: Path, content: dict[str, Any]) -> None:
    """At once: who waits for the file finds it whole."""
    partial = folder / "ready.json.partial"
    partial.write_text(json.dumps(content))
    partial.rename(folder / "ready.json")


def end_once(*_: object) -> None:
    """The first signal ends the cluster in order, and further ones do not disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level="INFO")
    for chatty in ("httpx", "urllib3"):  # each request; each attempt until the server is there
        logging.getLogger(chatty).setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, end_once)
    signal.signal(signal.SIGINT, end_once)
    folder, stack = sys.argv[1:]
    try:
        run(Path(folder), stack)
    except KeyboardInterrupt:
        return 0
    except FAULTS as error:
        sys.stderr.write(f"cluster: {' '.join(str(error).split())}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
