"""What a pod gives each of its containers: programs, variables, files, a place in its sandbox."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.images import Image, repository
from tools.cluster.kubelet import environment
from tools.cluster.kubelet.container import Files, ImageError
from tools.cluster.kubelet.devices import plugin_variables, stand_in_variables
from tools.cluster.kubelet.environment import PodFacts
from tools.cluster.kubelet.events import Events
from tools.cluster.kubelet.kube import Kube
from tools.cluster.kubelet.pace import Pace
from tools.cluster.kubelet.process import Process, Sandbox, StartError
from tools.cluster.kubelet.root import Mount, Root
from tools.cluster.kubelet.volumes import Csi, Volumes, fetch
from tools.cluster.network import Network

Manifest = dict[str, Any]

DOMAIN = "cluster.local"
HOSTNAME_LIMIT = 63
TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True)
class Host:
    """What all pods of one agent share."""

    kube: Kube
    events: Events
    pace: Pace
    network: Network
    images: Mapping[str, Image]
    """By repository."""
    folder: Path
    resolv_conf: Callable[[str], str]
    """Of a namespace."""
    csi: Csi | None
    service: Mapping[str, str]
    """How a pod finds the API server."""
    address: str
    """Of every node."""


@dataclass(frozen=True)
class Node:
    """What a pod sees of its node."""

    labels: Mapping[str, str]
    allocatable: Mapping[str, str]

    @classmethod
    def of(cls, manifest: Manifest) -> "Node":
        return cls(manifest["metadata"].get("labels", {}), manifest["status"]["allocatable"])


@dataclass(frozen=True)
class Runtime:
    """Starts the containers of one pod whose sandbox is there."""

    host: Host
    node: Node
    facts: PodFacts
    volumes: Volumes
    sandbox: Sandbox
    folder: Path

    async def start(self, container: Manifest, files: Files, niceness: int) -> Process:
        """Raises ImageError, MissingError, ApiError, StartError."""
        image = self.host.images.get(repository(container["image"]))
        if image is None:
            known = ", ".join(self.host.images)
            raise ImageError(f"no such image here; use one of {known}")
        namespace = self.facts.pod["metadata"]["namespace"]
        named = set(environment.references(container))
        sources = await fetch(self.host.kube, namespace, named)
        own = environment.variables(container, self.facts, sources)
        command = environment.command_line(container, image.entrypoint, own)
        if not command:
            raise StartError("no command specified")
        root = self._root(container, image, own, files)
        variables = self._variables(container, image, own)
        return await Process.start(
            self.sandbox, root, command, variables, log=files.log, niceness=niceness
        )

    def _variables(
        self, container: Manifest, image: Image, own: Mapping[str, str]
    ) -> dict[str, str]:
        result = {
            **image.variables(),
            "HOSTNAME": hostname(self.facts.pod),
            **self.host.service,
            **plugin_variables(container, self.node.labels),
            **own,
        }
        return {**result, **stand_in_variables(container, self.node.labels, result)}

    def _root(
        self, container: Manifest, image: Image, own: Mapping[str, str], files: Files
    ) -> Root:
        pod, folder = self.facts.pod, self.folder / container["name"]
        stage, tmp = folder / "stage", folder / "tmp"
        for made in (stage, tmp):
            made.mkdir(parents=True, exist_ok=True)
        tmp.chmod(0o1777)
        files.message.write_bytes(b"")
        place = container.get("terminationMessagePath", TERMINATION_LOG)
        return Root(
            stage=stage,
            files={
                "/etc/hostname": f"{hostname(pod)}\n",
                "/etc/hosts": hosts_file(pod, self.facts.pod_ip),
                "/etc/resolv.conf": self.host.resolv_conf(pod["metadata"]["namespace"]),
            },
            mounts=[
                Mount(tmp, "/tmp"),  # noqa: S108 # the container's own
                *(Mount(src, target, read_only=True) for target, src in image.folders.items()),
                Mount(files.message, place),
                *self.volumes.mounts(container, own),
            ],
            shared_memory=self.folder / "shm",
            working_dir=container.get("workingDir", image.working_dir),
        )


def hostname(pod: Manifest) -> str:
    return pod["spec"].get("hostname", pod["metadata"]["name"])[:HOSTNAME_LIMIT].rstrip("-.")


def hosts_file(pod: Manifest, address: str) -> str:
    """A pod knows itself, by its full name if it has a subdomain, and its hostAliases."""
    name, spec = hostname(pod), pod["spec"]
    names = [name]
    if subdomain := spec.get("subdomain"):
        names.insert(0, f"{name}.{subdomain}.{pod['metadata']['namespace']}.svc.{DOMAIN}")
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"{address} {' '.join(names)}"]
    lines += [f"{a['ip']} {' '.join(a.get('hostnames', []))}" for a in spec.get("hostAliases", [])]
    return "\n".join(lines) + "\n"
