"""The life of one pod: volumes, sandbox, init containers, containers, end."""

import asyncio
import contextlib
import logging
import math
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from tools.cluster.kubelet import probes, volumes
from tools.cluster.kubelet.container import Container, Files, Surroundings
from tools.cluster.kubelet.environment import MissingError, PodFacts
from tools.cluster.kubelet.kube import CONFLICT, NOT_FOUND, ApiError
from tools.cluster.kubelet.process import Process, Sandbox, StartError
from tools.cluster.kubelet.runtime import Host, Node, Runtime, hostname
from tools.cluster.kubelet.status import PodState, adopted, pod_status, timestamp, waiting
from tools.cluster.network import NetworkError

Manifest = dict[str, Any]

RETRY_S = 1.0
REFRESH_S = 60.0
"""Between two looks at the ConfigMaps, Secrets and tokens that are mounted."""
INIT_NICENESS = 10
"""KubeRay's ask again and again whether the head is there, each time with all of Ray: who waits
yields to whom it waits for, on the cores that they share."""
DEFAULT_GRACE_S = 30
SHORTEST_GRACE_S = 1
"""Of a pod that was deleted by force."""
OVER = ("Succeeded", "Failed")

logger = logging.getLogger(__name__)


class Pod:
    """Runs while `run` is awaited: until the API server has forgotten it."""

    def __init__(self, manifest: Manifest, host: Host, node: Node) -> None:
        self.manifest, self._host, self._node = manifest, host, node
        metadata, spec = manifest["metadata"], manifest["spec"]
        self.node_name = spec["nodeName"]
        self._path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self._folder = host.folder / "state" / metadata["uid"]
        self.logs = host.folder / "pods" / metadata["namespace"] / metadata["name"]
        self._started = manifest.get("status", {}).get("startTime") or timestamp()
        self._grace_s = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        self._changed, self._ending = asyncio.Event(), asyncio.Event()
        self._deleted = asyncio.Event()
        self._deadline_s = math.inf
        self._written: Manifest = {}
        self._fault: Manifest = {}
        self._over = False
        self._address: str | None = None
        self._runtime: Runtime | None = None
        self._init = [self._container(c, init=True) for c in spec.get("initContainers", [])]
        self._main = [self._container(c, init=False) for c in spec["containers"]]

    async def run(self) -> None:
        writer = asyncio.create_task(self._write_changes())
        try:
            if self.manifest.get("status", {}).get("phase") not in OVER:
                await self._live()
            await self._deleted.wait()
            await self._forget()
        finally:
            writer.cancel()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def delete(self, grace_s: float) -> None:
        """The API server says that it is to end, or has forgotten it already."""
        self._deleted.set()
        grace_s = max(grace_s, SHORTEST_GRACE_S)
        if time.monotonic() + grace_s < self._deadline_s:  # not each time that it is seen again
            await self.stop(grace_s)

    async def stop(self, grace_s: float) -> None:
        """The side-cars last, in what is left of the time."""
        self._deadline_s = time.monotonic() + grace_s
        self._ending.set()
        sidecars = [c for c in self._init if c.state.sidecar]
        others = [c for c in [*self._init, *self._main] if c not in sidecars]
        await asyncio.gather(*(c.stop(grace_s) for c in others))
        for sidecar in reversed(sidecars):
            await sidecar.stop(max(SHORTEST_GRACE_S, self._deadline_s - time.monotonic()))

    def report(self, kind: str, reason: str, message: str) -> None:
        self._host.events.report(self.manifest, kind, reason, message)

    def log_of(self, container: str, *, previous: bool) -> Path | None:
        """None if there is no such container."""
        for one in [*self._init, *self._main]:
            if one.state.name == container:
                return one.log(previous=previous)
        return None

    def writes(self, container: str) -> bool:
        """Whether it runs, and may say more."""
        states = [c.state for c in [*self._init, *self._main]]
        return any(s.name == container and "running" in s.state for s in states)

    async def _live(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        self._changed.set()
        try:
            if not self._refused():
                await self._run_containers()
        finally:
            self._over = True
            if self._runtime:
                await asyncio.shield(self._runtime.sandbox.stop())
        await self._publish()

    async def _run_containers(self) -> None:
        self._runtime = await self._prepare()
        if self._runtime is None:
            return
        self._address = self._runtime.sandbox.address
        self._changed.set()
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._refresh(self._runtime.volumes))]
            if limit_s := self.manifest["spec"].get("activeDeadlineSeconds"):
                beside.append(tasks.create_task(self._end_after(limit_s)))
            if await self._initialize(tasks):
                await asyncio.gather(*(tasks.create_task(c.keep()) for c in self._main))
            await self.stop(self._grace_s)  # the side-cars
            for task in beside:
                task.cancel()

    async def _initialize(self, tasks: asyncio.TaskGroup) -> bool:
        """One after the other; whether the others may start."""
        for container in self._init:
            life = tasks.create_task(container.keep())
            if container.state.sidecar:
                await container.began.wait()
            else:
                await life
            if self._ending.is_set() or (not container.state.sidecar and container.state.exit):
                return False
        return True

    async def _prepare(self) -> Runtime | None:
        """Volumes and sandbox, as soon as they can be had; None if it is to end before."""
        while not self._ending.is_set():
            try:
                return await self._runtime_now()
            except (MissingError, ApiError) as error:
                self.report("Warning", "FailedMount", str(error))
            except (StartError, NetworkError) as error:
                self.report("Warning", "FailedCreatePodSandBox", str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), RETRY_S)
        return None

    async def _runtime_now(self) -> Runtime:
        host, shm = self._host, self._folder / "shm"
        facts = PodFacts(self.manifest, "", host.address, self._node.allocatable)
        ready = volumes.Volumes(host.kube, facts, self._folder / "volumes", host.csi)
        ready.make_empty()
        shm.mkdir(exist_ok=True)
        await ready.fill()
        memory = [shm, *ready.memory_folders]
        sandbox = await Sandbox.start(host.network, hostname(self.manifest), memory)
        facts = PodFacts(self.manifest, sandbox.address, host.address, self._node.allocatable)
        return Runtime(host, self._node, facts, ready, sandbox, self._folder)

    async def _refresh(self, mounted: volumes.Volumes) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await mounted.fill()
            except (MissingError, ApiError) as error:
                logger.info("%s: %s", self._path, error)

    async def _end_after(self, limit_s: float) -> None:
        await asyncio.sleep(limit_s)
        message = "Pod was active on the node longer than the specified deadline"
        self._fault = {"reason": "DeadlineExceeded", "message": message}
        await self.stop(self._grace_s)

    def _refused(self) -> bool:
        """Whether it asks for what this agent does not do; it stays pending and says so."""
        spec = self.manifest["spec"]
        asked = [*volumes.unsupported(self.manifest)]
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            asked += probes.unsupported(container)
        asked += ["hostNetwork is not done here"] if spec.get("hostNetwork") else []
        if asked:
            for container in self._main:
                container.state.state = waiting("CreateContainerConfigError", "; ".join(asked))
            self.report("Warning", "Failed", "; ".join(asked))
        return bool(asked)

    def _container(self, manifest: Manifest, *, init: bool) -> Container:
        name, status = manifest["name"], self.manifest.get("status", {})
        known = status.get("initContainerStatuses" if init else "containerStatuses", [])
        before = next((one for one in known if one["name"] == name), None)
        files = Files(
            log=self.logs / f"{name}.log",
            previous_log=self.logs / f"{name}.previous.log",
            message=self._folder / name / "termination-log",
        )
        surroundings = Surroundings(
            start=partial(self._start, files, INIT_NICENESS if init else 0),
            changed=self._changed.set,
            report=self.report,
            address=lambda: self._address or "",
            restart_policy=self.manifest["spec"].get("restartPolicy", "Always"),
            grace_s=self._grace_s,
        )
        state = adopted(manifest, init=init, before=before)
        if before is None and not self.manifest["spec"].get("initContainers"):
            state.state = waiting("ContainerCreating")
        return Container(state, surroundings, files)

    async def _start(self, files: Files, niceness: int, container: Manifest) -> Process:
        assert self._runtime  # noqa: S101 # no container is started without
        begin = partial(self._runtime.start, container, files, niceness)
        process = await self._host.pace.start(container, self._address or "", begin)
        self.report("Normal", "Started", f"Started container {container['name']}")
        return process

    async def _write_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._publish()

    async def _publish(self) -> None:
        """Writes the status, if it is another one, until the API server has taken it."""
        while (status := self._status()) != self._written:
            metadata = {"uid": self.manifest["metadata"]["uid"]}
            try:
                answer = await self._host.kube.merge(
                    f"{self._path}/status", {"metadata": metadata, "status": status}
                )
            except ApiError as error:
                if error.status in (NOT_FOUND, CONFLICT):
                    return  # it is gone, and the watch will say so
                if error.refused:
                    logger.warning("%s", error)
                    return
                await asyncio.sleep(RETRY_S)
            else:
                self._written = status
                self.manifest = {**self.manifest, "status": answer["status"]}

    def _status(self) -> Manifest:
        state = PodState(
            containers=[c.state for c in [*self._init, *self._main]],
            address=self._address,
            sandbox=not self._over and self._address is not None,
            host_ip=self._host.address,
            started=self._started,
            ending=self._over and (self._ending.is_set() or bool(self._fault)),
            fault=self._fault,
        )
        return pod_status(self.manifest, state)

    async def _forget(self) -> None:
        """Tells the API server that nothing of it is left."""
        uid = self.manifest["metadata"]["uid"]
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        while True:
            try:
                await self._host.kube.delete(self._path, body)
            except ApiError as error:
                if error.refused:
                    return
                await asyncio.sleep(RETRY_S)
            else:
                return
