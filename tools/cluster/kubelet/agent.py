"""The agent: watches the pods that are bound to its nodes, and gives each its life."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubernetes.client import ApiClient

from tools.cluster.certificates import KeyPair
from tools.cluster.images import Image
from tools.cluster.kubelet import nodes
from tools.cluster.kubelet.events import Events
from tools.cluster.kubelet.kube import ApiError, Kube
from tools.cluster.kubelet.pace import Pace
from tools.cluster.kubelet.pod import Pod
from tools.cluster.kubelet.runtime import Host, Node
from tools.cluster.kubelet.server import LogServer
from tools.cluster.kubelet.volumes import Csi
from tools.cluster.network import Network

Manifest = dict[str, Any]

ADDRESS = "127.0.0.1"
"""Of each node: where the API server asks for logs, out of reach of pods."""
START_LIMIT_S = 60
STOP_LIMIT_S = 60

logger = logging.getLogger(__name__)


class KubeletError(Exception):
    """Pods cannot be run. One line that ends with the way out."""


class Kubelet:
    """Runs while it is entered; its processes end with it, whatever ends it.

    A node whose object is deleted is a machine that is gone: so are its pods, at once. One that is
    made again under its name is served again.
    """

    def __init__(
        self,
        api: ApiClient,
        network: Network,
        images: Mapping[str, Image],
        nodes: Sequence[Manifest],
        folder: Path,
        *,
        resolv_conf: Callable[[str], str],
        certificate: KeyPair,
        authority: Path,
        csi: Csi | None = None,
    ) -> None:
        """A kubelet for several nodes.

        Args:
            api: A client with an administrator's rights.
            network: Where pods have their addresses.
            images: What there is to run, by repository.
            nodes: Their manifests; what they offer is in `status`.
            folder: Here logs are kept (pods/NAMESPACE/POD/CONTAINER.log), and pods' volumes.
            resolv_conf: What a pod of a namespace finds in /etc/resolv.conf.
            certificate: Of the server of logs, for 127.0.0.1.
            authority: Whose clients may ask for logs.
            csi: What mounts the volumes of drivers.
        """
        self._configuration = api.configuration
        self._network, self._images, self._folder = network, images, folder
        self._manifests = {node["metadata"]["name"]: node for node in nodes}
        self._resolv_conf, self._csi = resolv_conf, csi
        self._pods: dict[str, Pod] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._heartbeats: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = LogServer(self._find_pod, certificate, authority)
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._ready = threading.Event()
        self._fault: BaseException | None = None

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise KubeletError(
                "pods need network and mount namespaces, which only root makes: run this as root"
            )
        self._thread.start()
        if not self._ready.wait(START_LIMIT_S):
            self._end()
            raise KubeletError(f"nodes were not registered within {START_LIMIT_S} s; see the log")
        if self._fault:
            raise KubeletError(f"nodes cannot be registered: {self._fault}") from self._fault
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_LIMIT_S)

    def _run(self) -> None:
        """In a thread that lives as long as the agent: processes end with who started them."""
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            try:
                runner.run(self._serve())
            except BaseException as error:  # told to who waits, or logged
                self._fault = error
                if self._ready.is_set():
                    logger.exception("the agent has ended")
            finally:
                self._ready.set()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        async with AsyncExitStack() as running:
            kube = await running.enter_async_context(Kube(self._configuration))
            running.enter_context(self._server)
            running.push_async_callback(self._end_all)
            for name, manifest in self._manifests.items():
                await nodes.register(kube, manifest, ADDRESS, self._server.port)
                self._heartbeats[name] = asyncio.create_task(nodes.keep_alive(kube, name))
            host = Host(
                kube=kube,
                events=Events(kube),
                pace=Pace(),
                network=self._network,
                images=self._images,
                folder=self._folder,
                resolv_conf=self._resolv_conf,
                csi=self._csi,
                service=await nodes.api_service(kube),
                address=ADDRESS,
            )
            self._ready.set()
            async with asyncio.TaskGroup() as tasks:
                watches = [
                    tasks.create_task(self._watch_nodes(kube)),
                    tasks.create_task(self._watch_pods(host)),
                ]
                await self._stopping.wait()
                for watch in watches:
                    watch.cancel()

    async def _end_all(self) -> None:
        await _cancel([*self._lives.values(), *self._heartbeats.values()])

    async def _watch_nodes(self, kube: Kube) -> None:
        async for seen in kube.watch("/api/v1/nodes"):
            if isinstance(seen, list):
                there = {node["metadata"]["name"] for node in seen}
                gone = self._heartbeats.keys() - there
            else:
                name = seen["object"]["metadata"]["name"]
                there, gone = (set(), {name}) if seen["type"] == "DELETED" else ({name}, set())
            for name in gone & self._heartbeats.keys():
                await self._lose(name)
            for name in (there & self._manifests.keys()) - self._heartbeats.keys():
                self._heartbeats[name] = asyncio.create_task(self._serve_again(kube, name))

    async def _serve_again(self, kube: Kube, name: str) -> None:
        logger.info("node %s is back", name)
        try:
            await nodes.report(kube, name, self._manifests[name], ADDRESS, self._server.port)
        except ApiError as error:
            logger.warning("%s", error)
        await nodes.keep_alive(kube, name)

    async def _lose(self, node: str) -> None:
        """A machine is gone: its processes are not asked, and nothing is reported."""
        logger.info("node %s is gone", node)
        lost = [uid for uid, pod in self._pods.items() if pod.node_name == node]
        lives = [self._lives[uid] for uid in lost if uid in self._lives]
        await _cancel([self._heartbeats.pop(node), *lives])

    async def _watch_pods(self, host: Host) -> None:
        async for seen in host.kube.watch("/api/v1/pods", {"fieldSelector": "spec.nodeName!="}):
            if isinstance(seen, dict):
                self._see(host, seen["type"], seen["object"])
                continue
            there = {manifest["metadata"]["uid"] for manifest in seen}
            for uid in self._pods.keys() - there:
                self._see(host, "DELETED", self._pods[uid].manifest)
            for manifest in seen:
                self._see(host, "ADDED", manifest)

    def _see(self, host: Host, event: str, manifest: Manifest) -> None:
        metadata, node = manifest["metadata"], manifest["spec"]["nodeName"]
        if node not in self._manifests:
            return
        pod = self._pods.get(metadata["uid"])
        if pod is None and event != "DELETED":
            pod = self._begin(host, manifest)
        if pod is None:
            return
        pod.manifest = {**pod.manifest, "metadata": metadata}
        if event == "DELETED" or "deletionTimestamp" in metadata:
            self._start(pod.delete(metadata.get("deletionGracePeriodSeconds") or 0))
        if event == "DELETED":
            del self._pods[metadata["uid"]]

    def _begin(self, host: Host, manifest: Manifest) -> Pod:
        uid = manifest["metadata"]["uid"]
        node = self._manifests[manifest["spec"]["nodeName"]]
        pod = self._pods[uid] = Pod(manifest, host, Node.of(node))
        life = self._lives[uid] = self._start(pod.run())
        life.add_done_callback(lambda _: self._lives.pop(uid))
        return pod

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the loop alone would forget it
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("a pod's life has ended", exc_info=error)

    def _find_pod(self, namespace: str, name: str) -> Pod | None:
        for pod in list(self._pods.values()):
            metadata = pod.manifest["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return pod
        return None


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
