"""The life of one container: started, probed, restarted with growing pauses, ended."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.kubelet import status
from tools.cluster.kubelet.environment import MissingError
from tools.cluster.kubelet.kube import ApiError
from tools.cluster.kubelet.probes import Handler, verdicts
from tools.cluster.kubelet.process import Process, StartError
from tools.cluster.kubelet.status import ContainerState

Manifest = dict[str, Any]

RETRY_S = 2.0
"""Until what a container needs is looked for again."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 300.0
"""Between restarts, doubled each time: a kubelet's."""
FORGIVEN_AFTER_S = 600.0
CANNOT_RUN = 128
MESSAGE_BYTES = 4096
FALLBACK_LINES, FALLBACK_BYTES = 80, 2048


class ImageError(Exception):
    """No such image."""


@dataclass(frozen=True)
class Files:
    """What one container leaves on this machine."""

    log: Path
    previous_log: Path
    message: Path
    """What it writes to its termination log."""


@dataclass
class Surroundings:
    """What a container is told by its pod."""

    start: Callable[[Manifest], Coroutine[Any, Any, Process]]
    """Raises ImageError, MissingError, ApiError, StartError."""
    changed: Callable[[], None]
    """The state is another one."""
    report: Callable[[str, str, str], None]
    """An event: type, reason, message."""
    address: Callable[[], str]
    restart_policy: str
    grace_s: float


class Container:
    """Runs when `keep` is awaited; ends for good when `stop` was called or its policy says so."""

    def __init__(self, state: ContainerState, pod: Surroundings, files: Files) -> None:
        self.state, self._pod, self.files = state, pod, files
        self.began = asyncio.Event()
        """It runs, and its startup probe has passed; or it will not any more."""
        self._ending = asyncio.Event()
        self._process: Process | None = None
        self._handler: Handler | None = None
        self._starting: asyncio.Task[Process] | None = None
        self._pauses = _pauses()

    async def keep(self) -> None:
        try:
            while self._goes_on():
                await self._pause_before_restart()
                await self._once()
        finally:
            self.began.set()

    async def stop(self, grace_s: float) -> None:
        """Asks it to end, kills it after `grace_s`; it does not come back."""
        asked_before = self._ending.is_set()
        self._ending.set()
        if self._starting:
            self._starting.cancel()  # it may be waiting for its turn
        if self._process and asked_before:
            await self._process.stop(grace_s)
        elif self._process:
            await self._end(self._process, grace_s)

    def log(self, *, previous: bool) -> Path:
        """While it waits for a restart, the last run is the previous one too."""
        waits = "waiting" in self.state.state
        return self.files.previous_log if previous and not waits else self.files.log

    def _goes_on(self) -> bool:
        if self._ending.is_set():
            return False
        code = self.state.exit
        if code is None:
            return True
        policy = "Always" if self.state.sidecar else self._pod.restart_policy
        if self.state.init and not self.state.sidecar:
            return policy != "Never" and code != 0
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    async def _pause_before_restart(self) -> None:
        """The first restart comes at once, later ones after a growing pause."""
        if "terminated" not in self.state.state:
            return
        pause_s = next(self._pauses)
        self.state.last_state = self.state.state
        if pause_s:
            message = f"back-off {pause_s:g}s restarting failed container={self.state.name}"
            self._now(status.waiting("CrashLoopBackOff", message))
            self._pod.report("Warning", "BackOff", message)
            await self._wait(pause_s)
        if not self._ending.is_set():
            self.state.restarts += 1
            with contextlib.suppress(FileNotFoundError):
                self.files.log.replace(self.files.previous_log)

    async def _once(self) -> None:
        began = status.timestamp()
        try:
            process = await self._until_started()
        except StartError as error:
            self._pod.report("Warning", "Failed", str(error))
            self._now(status.terminated(CANNOT_RUN, began, "StartError", str(error)))
            return
        if process:
            await self._run(process)

    async def _run(self, process: Process) -> None:
        started, started_s = status.timestamp(), time.monotonic()
        self._process = process
        self._handler = Handler(self.state.manifest, process, self._pod.address())
        self.state.identity = f"process://{process.first or 0}"
        self._now(status.running(started))
        health = asyncio.create_task(self._watch_health(process))
        try:
            if self._ending.is_set():  # meanwhile
                await process.kill()
            code = status.exit_code(await process.wait())
        finally:
            health.cancel()
            await process.kill()  # also if this task is cancelled
            self._process = None
        if time.monotonic() - started_s > FORGIVEN_AFTER_S:
            self._pauses = _pauses()
        self._now(status.terminated(code, started, message=self._message(code)))

    async def _until_started(self) -> Process | None:
        """None if it is to end before it started. Raises StartError."""
        container = self.state.manifest
        self._now(status.waiting("ContainerCreating"))
        for attempt in itertools.count():
            if self._ending.is_set():
                break
            self._starting = asyncio.create_task(self._pod.start(container))
            try:
                return await self._starting
            except ImageError as error:
                reason = "ImagePullBackOff" if attempt else "ErrImagePull"
                self._cannot_start(reason, f"{container['image']}: {error}")
            except (MissingError, ApiError) as error:
                self._cannot_start("CreateContainerConfigError", str(error))
            except asyncio.CancelledError:
                if not self._ending.is_set():
                    raise
            await self._wait(RETRY_S)
        return None

    def _cannot_start(self, reason: str, message: str) -> None:
        before = self.state.state
        self._now(status.waiting(reason, message))
        if before != self.state.state:
            self._pod.report("Warning", "Failed", f"Error: {reason}: {message}")

    async def _watch_health(self, process: Process) -> None:
        manifest = self.state.manifest
        if not await self._hook("postStart", self._pod.grace_s):
            await self._end(process, self._pod.grace_s)
            return
        if startup := manifest.get("startupProbe"):
            await self._watch(startup, "Startup", process)
        self.state.started = True
        self.state.ready = "readinessProbe" not in manifest
        self.began.set()
        self._pod.changed()
        async with asyncio.TaskGroup() as tasks:
            if liveness := manifest.get("livenessProbe"):
                tasks.create_task(self._watch(liveness, "Liveness", process))
            if readiness := manifest.get("readinessProbe"):
                tasks.create_task(self._watch(readiness, "Readiness", process))

    async def _watch(self, probe: Manifest, kind: str, process: Process) -> None:
        """Acts on a probe's verdicts. A startup probe's ends with the first good one."""
        assert self._handler  # noqa: S101 # set before any probe
        async for wrong in verdicts(probe, self._handler.check(probe)):
            if wrong:
                self._pod.report("Warning", "Unhealthy", f"{kind} probe failed: {wrong}")
            if kind == "Readiness":
                self._become_ready(ready=wrong is None)
            elif wrong:
                grace_s = probe.get("terminationGracePeriodSeconds", self._pod.grace_s)
                self._pod.report("Normal", "Killing", f"{kind} probe failed: it is restarted")
                await asyncio.shield(self._end(process, grace_s))
            elif kind == "Startup":
                return

    def _become_ready(self, *, ready: bool) -> None:
        if self.state.ready != ready:
            self.state.ready = ready
            self._pod.changed()

    async def _end(self, process: Process, grace_s: float) -> None:
        deadline_s = time.monotonic() + grace_s
        await self._hook("preStop", grace_s)
        await process.stop(max(0.0, deadline_s - time.monotonic()))

    async def _hook(self, name: str, limit_s: float) -> bool:
        """Whether it went well, or there is none."""
        hook = self.state.manifest.get("lifecycle", {}).get(name)
        if hook is None or self._handler is None:
            return True
        wrong = await self._handler.ask(hook, limit_s)
        if wrong:
            self._pod.report("Warning", f"Failed{name[0].upper()}{name[1:]}Hook", wrong)
        return wrong is None

    def _now(self, state: Manifest) -> None:
        self.state.state = state
        ended_well = state.get("terminated", {}).get("exitCode") == 0
        self.state.started = False
        self.state.ready = self.state.init and not self.state.sidecar and ended_well
        self._pod.changed()

    async def _wait(self, seconds: float) -> None:
        """Or until it is to end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)

    def _message(self, code: int) -> str:
        """What it wrote for this purpose; else, if wanted, the end of its log."""
        with contextlib.suppress(FileNotFoundError):
            if text := self.files.message.read_bytes()[:MESSAGE_BYTES]:
                return text.decode(errors="replace")
        policy = self.state.manifest.get("terminationMessagePolicy")
        if code == 0 or policy != "FallbackToLogsOnError":
            return ""
        end = self.files.log.read_bytes()[-FALLBACK_BYTES:].decode(errors="replace")
        return "\n".join(end.splitlines()[-FALLBACK_LINES:])


def _pauses() -> Iterator[float]:
    yield 0.0
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
