"""Processes in namespaces: the sandbox that a pod's containers share, and one container's.

All of them end with this process, whatever ends it: the kernel sees to it (parent death signal).
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tools.cluster.kubelet.root import Root
from tools.cluster.network import Network, ip

START_LIMIT_S = 60
"""To make namespaces and mounts: tens of milliseconds, on a machine that is not overwhelmed."""
_WITH_US = ("setpriv", "--pdeathsig", "KILL")
# Tells how its child ended, the first process of the namespace: `unshare --fork` says 1 if a
# signal did it (util-linux 2.38). What a shell says of that itself is not for the log.
_PARENT = """\
exec 2>/dev/null
(exec setpriv --pdeathsig KILL sh -c "$0" sh "$@" 2>&1)
exit $?
"""
_SHARED = ("--mount", "--net", "--uts", "--ipc")


class StartError(Exception):
    """A sandbox or container could not be made."""


@dataclass
class Sandbox:
    """A pod's network, host name, shared memory; held by a process that does nothing."""

    network: Network
    address: str
    _holder: asyncio.subprocess.Process

    @classmethod
    async def start(cls, network: Network, hostname: str, memory_folders: Sequence[Path]) -> Self:
        """`memory_folders` become file systems in memory for all containers. Raises StartError."""
        address = network.take()
        try:
            holder, said = await _start(
                [*_WITH_US, "unshare", *_SHARED, "sh", "-c", _holder(hostname, memory_folders)],
                {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                asyncio.subprocess.DEVNULL,
            )
        except BaseException:
            network.give_back(address)
            raise
        sandbox = cls(network, address, holder)
        if said != b"ok\n":
            await sandbox.stop()
            raise StartError("the pod's namespaces could not be made; it takes root")
        try:
            await asyncio.to_thread(sandbox._connect)
        except BaseException:
            await sandbox.stop()
            raise
        return sandbox

    @property
    def pid(self) -> int:
        return self._holder.pid

    async def stop(self) -> None:
        _kill(self._holder)
        await self._holder.wait()
        # It goes with the namespace too, but later: its name may be wanted before.
        with contextlib.suppress(Exception):
            await asyncio.to_thread(ip, "link", "del", self._link)
        self.network.give_back(self.address)

    @property
    def _link(self) -> str:
        return f"{self.network.bridge}p{self.address.rpartition('.')[2]}"

    def _connect(self) -> None:
        network, pid = self.network, self.pid
        address = f"{self.address}/{network.pod_range.prefixlen}"
        ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        ip("link", "set", self._link, "master", network.bridge, "up")
        ip("addr", "add", address, "dev", "eth0", inside=pid)
        ip("link", "set", "eth0", "up", inside=pid)
        ip("route", "add", "default", "via", network.gateway, inside=pid)


@dataclass
class Process:
    """A running container: a first process, and all that it started."""

    _parent: asyncio.subprocess.Process
    """A shell that waits for the container's first process, and exits as a kubelet counts."""
    first: int | None
    """The container's first process: its number here, where it calls itself 1. None if it had
    ended before it was looked for."""
    _environment: Mapping[str, str]

    @classmethod
    async def start(
        cls,
        sandbox: Sandbox,
        root: Root,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        log: Path,
        niceness: int = 0,
    ) -> Self:
        """Its output goes to `log`. Raises StartError."""
        enter = ("nsenter", "--target", str(sandbox.pid), *_SHARED)
        own = ("unshare", "--mount", "--pid", "sh", "-c", _PARENT)
        with log.open("ab") as output:
            parent, said = await _start(
                [*_WITH_US, "nice", "-n", str(niceness), *enter, *own, root.script(), *command],
                environment,
                output.fileno(),
            )
        if said == b"ok\n":
            return cls(parent, _child(parent.pid), environment)
        _kill(parent)
        await parent.wait()
        raise StartError(last_line(log))

    @property
    def running(self) -> bool:
        return self._parent.returncode is None

    async def wait(self) -> int:
        """As Python says it: -9 for one that a signal ended."""
        return await self._parent.wait()

    async def stop(self, grace_s: float) -> None:
        """Asks the first process to end; kills all of them when the time is up."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._parent.wait(), grace_s)
        await self.kill()

    async def kill(self) -> None:
        """The kernel ends all processes of a namespace with its first."""
        self._signal(signal.SIGKILL)
        await self._parent.wait()

    def _signal(self, number: int) -> None:
        if self.first is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.first, number)

    async def execute(self, command: Sequence[str], limit_s: float) -> tuple[int, str]:
        """Runs a command in the container. Raises StartError, TimeoutError after `limit_s`."""
        if self.first is None:
            raise StartError("the container has ended")
        enter = ["nsenter", "--target", str(self.first), *_SHARED, "--pid", "--root", "--wd"]
        process = await asyncio.create_subprocess_exec(
            *_found([*_WITH_US, *enter, *command]),
            env=dict(self._environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), limit_s)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return process.returncode or 0, output.decode(errors="replace").strip()


def last_line(log: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        for line in reversed(log.read_text(errors="replace").splitlines()):
            if line.strip():
                return line.strip()
    return "it said nothing"


def _holder(hostname: str, memory_folders: Sequence[Path]) -> str:
    mounts = [f"mount -t tmpfs -o mode=1777 memory {shlex.quote(str(f))}" for f in memory_folders]
    lines = [
        "set -e",
        f"echo {shlex.quote(hostname)} > /proc/sys/kernel/hostname",
        *mounts,
        "ip link set lo up",
        "echo ok >&0",
        "exec sleep infinity </dev/null",
    ]
    return "\n".join(lines)


async def _start(
    command: Sequence[str], environment: Mapping[str, str], output: int
) -> tuple[asyncio.subprocess.Process, bytes]:
    """Starts a script that says "ok" on its standard input; what it said."""
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as pipe:
        try:
            process = await asyncio.create_subprocess_exec(
                *_found(command),
                env=dict(environment),
                stdin=theirs,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            said = await asyncio.wait_for(reader.readline(), START_LIMIT_S)
        except BaseException as error:
            _kill(process)
            if isinstance(error, TimeoutError):
                raise StartError(f"namespaces were not made within {START_LIMIT_S} s") from None
            raise
        finally:
            transport.close()
    return process, said


def _found(command: Sequence[str]) -> list[str]:
    """With the program's path: the container's PATH need not lead to it."""
    program = shutil.which(command[0], path="/usr/sbin:/usr/bin:/sbin:/bin")
    if program is None:
        raise StartError(f"there is no {command[0]} on this machine; install util-linux")
    return [program, *command[1:]]


def _child(pid: int) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None
    return None


def _kill(process: asyncio.subprocess.Process) -> None:
    """Not by its own method, which asks for the process's end and so takes it from asyncio."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
