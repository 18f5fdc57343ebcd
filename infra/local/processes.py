"""Processes that outlive the run of Pulumi that starts them, found and ended exactly.

A command runs in a session of its own with a mark in its environment. Whatever it starts (Ray:
raylets, agents, workers, jobs) inherits both, so `find` sees all of it and nothing else, also
after a crash that recorded nothing. The mark alone is not enough: programs that
set their process title (Ray's dashboard) overwrite the memory that /proc shows as environment.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from infra.errors import LocalError

MARK = "RAYTPU_PROCESS"


def run(
    mark: str, command: Sequence[str], *, env: Mapping[str, str], log: Path, timeout_s: float
) -> None:
    """Runs `command`, which leaves processes behind, under `mark`; its output goes to `log`.

    Raises LocalError with the last line of its output when it fails or takes longer than
    `timeout_s`; nothing of it is left running then.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            env={**env, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",  # never keep a folder of the user's busy
            start_new_session=True,
        )
    try:
        status = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        status = None
    if status == 0:
        return
    process.kill()
    end(mark)
    fault = f"did not finish in {timeout_s:.0f} s" if status is None else f"exited with {status}"
    raise LocalError(f"{mark}: {Path(command[0]).name} {fault}: {last_line(log)}; its log is {log}")


def find(mark: str) -> list[psutil.Process]:
    """All living processes of `mark`, and of the marks below it (`mark/...`)."""
    marked: list[psutil.Process] = []
    sessions: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        try:
            sessions.setdefault(os.getsid(process.pid), []).append(process)
            value = process.environ().get(MARK, "")
        except (psutil.Error, OSError):
            continue  # ended meanwhile, or another user's
        if value == mark or value.startswith(f"{mark}/"):
            marked.append(process)
    ours = {_session(process) for process in marked}
    members = [process for session in ours if session for process in sessions.get(session, [])]
    return [p for p in {*marked, *members} if _lives(p)]


def end(mark: str, *, grace_s: float = 3.0) -> int:
    """Ends every process of `mark`: asks, waits at most `grace_s`, then kills. How many there were.

    Raises LocalError when one does not end even then.
    """
    processes = find(mark)
    _signal(processes, psutil.Process.terminate)
    left = _wait(processes, grace_s)
    # Those too that were started meanwhile.
    deadline = time.monotonic() + grace_s
    while left := list({*(p for p in left if _lives(p)), *find(mark)}):
        if time.monotonic() > deadline:
            ids = ",".join(str(process.pid) for process in left)
            raise LocalError(
                f"{mark}: processes {ids} do not end; look at `ps -o pid,stat,wchan -p {ids}`"
            )
        _signal(left, psutil.Process.kill)
        _wait(left, 1.0)
    return len(processes)


def last_line(log: Path) -> str:
    """What a program said last: of one that failed, most often the reason."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except FileNotFoundError:
        lines = []
    return next((line for line in reversed(lines) if line), "it printed nothing")


def alive(pid: int, mark: str) -> bool:
    """Whether `pid` is still a process of exactly this mark."""
    try:
        process = psutil.Process(pid)
        return process.environ().get(MARK) == mark and _lives(process)
    except psutil.Error:
        return False


def _wait(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that still live after at most `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (left := [p for p in processes if _lives(p)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def _lives(process: psutil.Process) -> bool:
    """A zombie counts as ended: it holds nothing, and its parent may never ask for it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(processes: Sequence[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            send(process)
