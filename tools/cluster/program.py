"""A program of the cluster: started, watched, ended; what it says goes to its log."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

STOP_LIMIT_S = 5
POLL_S = 0.05
TAIL_LINES = 5
TAIL_BYTES = 8192
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
"""So that nothing is left running if this process is killed."""


class ProgramError(Exception):
    """A program did not start, or has ended. One line, with the last that it said."""


class Program:
    """One process, started when entered. `name` is for messages and for its log."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        logs: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log = name, logs / f"{name}.log"
        self._command = [*DIES_WITH_US, *map(str, command)]
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,  # a Ctrl-C is for us, who end it in order
            )

    def stop(self) -> None:
        """Ends it; kills it if it does not end in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def check(self) -> None:
        """Raises ProgramError if it has ended by itself."""
        if self._process and (code := self._process.poll()) is not None:
            raise ProgramError(f"{self.name} ended with code {code}; {self.last_words()}")

    def last_words(self) -> str:
        """Where its log is, and the end of it, on one line."""
        return f"{self.log} ends: {tail(self.log)}"

    def wait(self, ready: Callable[[], bool], what: str, limit_s: float) -> None:
        """Waits until `ready`. Raises ProgramError if it ends, or takes longer than `limit_s`."""
        deadline_s = time.monotonic() + limit_s
        while not ready():
            self.check()
            if time.monotonic() > deadline_s:
                raise ProgramError(
                    f"{self.name}: {what} not within {limit_s:g} s; {self.last_words()}"
                )
            time.sleep(POLL_S)


def tail(log: Path) -> str:
    """The last lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return " | ".join(line.strip() for line in lines[-TAIL_LINES:]) or "it said nothing"
