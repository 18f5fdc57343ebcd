"""One cluster and its folder: started, found again, ended, from outside of its namespaces.

The supervisor is process 1 of a PID namespace of its own, so that the kernel ends all that belongs
to the cluster when it ends, however it ends.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tools.cluster.network import Network
from tools.cluster.program import DIES_WITH_US, tail

START_LIMIT_S = 600
STOP_LIMIT_S = 60
POLL_S = 0.1
CLOCK_TOLERANCE_S = 5
"""By which the time of a start seems to move when the clock is set."""
OWN_NAMESPACES = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
ROOT = Path(__file__).parents[2]


class InstanceError(Exception):
    """A cluster cannot be started or ended. One line that ends with the way out."""


@dataclass(frozen=True)
class Instance:
    """The cluster of a folder, whether it is up or not."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "logs/supervisor.log"

    @property
    def _record(self) -> Path:
        return self.folder / "supervisor.json"

    def ready(self) -> dict[str, Any] | None:
        """What one needs to use it, once it is ready: the kubeconfig among it."""
        try:
            return json.loads((self.folder / "ready.json").read_text())
        except FileNotFoundError:
            return None

    def process(self) -> psutil.Process | None:
        """The supervisor's, if it runs: by its number and the time it was started."""
        try:
            record = json.loads(self._record.read_text())
            process = psutil.Process(record["pid"])
            late_s = abs(process.create_time() - record["started"])
            ended = process.status() == psutil.STATUS_ZOMBIE
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            return None
        return process if late_s < CLOCK_TOLERANCE_S and not ended else None

    def start(self, stack: str, *, outlives_us: bool) -> dict[str, Any]:
        """Starts a cluster with the nodes of a stack, and waits until it is ready."""
        self._prepare()
        command = [*OWN_NAMESPACES, sys.executable, "-m", "tools.cluster.supervisor"]
        with self.log.open("ab") as log:
            supervisor = subprocess.Popen(
                [*(() if outlives_us else DIES_WITH_US), *command, str(self.folder), stack],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started = psutil.Process(supervisor.pid).create_time()
        self._record.write_text(json.dumps({"pid": supervisor.pid, "started": started}))
        try:
            return self._wait(supervisor)
        except BaseException:
            self.stop()
            raise

    def _wait(self, supervisor: "subprocess.Popen[bytes]") -> dict[str, Any]:
        deadline_s = time.monotonic() + START_LIMIT_S
        while (ready := self.ready()) is None:
            if supervisor.poll() is not None:
                raise InstanceError(f"the cluster did not start: {tail(self.log)}")
            if time.monotonic() > deadline_s:
                raise InstanceError(
                    f"the cluster was not ready within {START_LIMIT_S} s; {self.log} ends: "
                    f"{tail(self.log)}"
                )
            time.sleep(POLL_S)
        return ready

    def _prepare(self) -> None:
        if os.geteuid() != 0:
            raise InstanceError(
                "a cluster's pods are processes in network namespaces, which only root may make; "
                "run it as root, on a machine or in a container of yours"
            )
        if self.process():
            raise InstanceError(f"{self.folder}: a cluster is up; end it first")
        if self.folder.is_dir() and any(self.folder.iterdir()):
            if not self._record.is_file():
                raise InstanceError(
                    f"{self.folder} holds what is not a cluster's; name another folder"
                )
            shutil.rmtree(self.folder)
        self.log.parent.mkdir(parents=True)

    def restart_api_server(self) -> None:
        """Asks the supervisor for it, and does not wait."""
        if inner := self._inner():
            inner.send_signal(signal.SIGHUP)

    def stop(self) -> bool:
        """Ends the cluster, and removes what it or a crash left; whether it was up."""
        process = self.process()
        if process:
            self._end(process)
        if os.geteuid() == 0:
            with Network.claim():  # removes the networks of the dead
                pass
        for name in ("ready.json", "kubeconfig"):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "secrets", ignore_errors=True)
        return process is not None

    def _inner(self) -> psutil.Process | None:
        """The supervisor itself: the one child of `unshare`."""
        process = self.process()
        return next(iter(process.children()), None) if process else None

    def _end(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            inner = self._inner()
            (inner or process).terminate()
            _, alive = psutil.wait_procs([process], STOP_LIMIT_S)
            if alive:
                process.kill()  # and the kernel the rest
                psutil.wait_procs([process], STOP_LIMIT_S)
