"""A host's side of a program: starts its process, passes on what it prints, tells how it ended."""

import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from workloads.slice_group import HostActor
from workloads.spmd.program import Outcome, Part

LAST_LINES = 30
GATHER_S = 0.1
"""For lines that are passed on together."""


@dataclass(frozen=True)
class Ended:
    """How a host's part ended."""

    error: str | None = None
    """None: well."""
    returned: Any = None
    faults: tuple[str, ...] = ()
    """As of Outcome."""
    last_lines: tuple[str, ...] = ()
    at_s: float = 0.0
    """By the host's clock: of several that fail, the first is the cause."""


class ProgramHost(HostActor):
    """Holds a host's chips for the process that uses them, which ends with this one."""

    def run(self, part: Part, env: Mapping[str, str]) -> Iterator[list[str] | Ended]:
        """What the first host prints, as it comes, and at last how this one ended."""
        speaks, last = part.place.process == 0, deque[str](maxlen=LAST_LINES)
        with tempfile.TemporaryDirectory() as folder:
            outcome = Path(folder) / "outcome.json"
            process = subprocess.Popen(
                [sys.executable, "-u", "-m", "workloads.spmd.child", str(outcome)],
                env={**os.environ, **env, **part.variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert process.stdin  # noqa: S101 # piped
            assert process.stdout  # noqa: S101 # piped
            with process.stdin as given:
                given.write(pickle.dumps(part))
            for lines in _lines(process.stdout):
                last.extend(lines)
                if speaks:
                    yield lines
            yield _ended(process.wait(), outcome, tuple(last))


def _lines(stream: IO[bytes]) -> Iterator[list[str]]:
    coming: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in stream:
            coming.put(line.decode(errors="replace").rstrip())
        coming.put(None)

    threading.Thread(target=read, daemon=True).start()
    ended = False
    while not ended:
        lines = [coming.get()]
        time.sleep(GATHER_S)
        while not coming.empty():
            lines.append(coming.get())
        ended = lines[-1] is None
        if printed := [line for line in lines if line is not None]:
            yield printed


def _ended(code: int, outcome: Path, last: tuple[str, ...]) -> Ended:
    now_s = time.time()
    if outcome.exists():
        found = Outcome.model_validate_json(outcome.read_text())
        # It may have failed after that: JAX waits for the other hosts when a process ends.
        error = found.error or (f"ended with {_told(code)}" if code else None)
        return Ended(error, found.returned, found.faults, last, now_s)
    error = f"ended with {_told(code)}" if code else None  # a script may end by sys.exit()
    return Ended(error, last_lines=last, at_s=now_s)


def _told(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
