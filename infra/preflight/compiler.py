"""The compiling process: started at the first program, ended with its user.

It is one of its own because it loads JAX and libtpu, which no command of the stack does, and
because libtpu ends a process that it cannot go on with.
"""

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from infra.errors import Problem
from workloads.preflight.program import Answer, ServeStep, TrainStep

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    # libtpu looks for the machine that it runs on, and complains where it is none of Google's.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v6e-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    # It takes a TPU for itself by a lock; without a TPU, two that only compile do no harm.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
FOREIGN = ("JAX_", "LIBTPU_", "MEGASCALE_", "TPU_", "XLA_")
"""Variables that begin so may change what is compiled, and are not handed on."""
END_TIMEOUT_S = 10


class CompilerError(Exception):
    """The compiler did not answer. One line that ends with the way out."""


class Compiler:
    def __init__(self, cache: Path, timeout_s: float) -> None:
        self._command = [sys.executable, "-m", "workloads.preflight.main", "--cache", str(cache)]
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 # closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._errors.close()

    def ask(self, program: TrainStep | ServeStep) -> Answer:
        """Raises CompilerError if no answer comes in time."""
        process = self._process = self._process or self._start()
        line = b""
        with contextlib.suppress(BrokenPipeError):
            if process.stdin is None:
                raise TypeError("the compiler was started without a pipe")
            process.stdin.write(program.model_dump_json().encode() + b"\n")
            process.stdin.flush()
            line = self._line(process)
        if not line:
            raise CompilerError(self._why_it_ended(process))
        return Answer.model_validate_json(line)

    def _start(self) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return subprocess.Popen(
            self._command,
            env={**kept, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """An answer's line; empty if the process ended before. Raises CompilerError if none comes.

        Read without a buffer of Python's, of which select knows nothing.
        """
        if process.stdout is None:
            raise TypeError("the compiler was started without a pipe")
        pipe, deadline, line = process.stdout.fileno(), time.monotonic() + self._timeout_s, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self._end()
                limit = f"{self._timeout_s:g} s"
                raise CompilerError(f"was not compiled within {limit}; allow more by --timeout-s")
            part = os.read(pipe, 65536)
            if not part:
                return b""
            line += part
        return line

    def _why_it_ended(self, process: subprocess.Popen[bytes]) -> str:
        self._end()
        self._errors.seek(0)
        told = self._errors.read().decode(errors="replace").strip().splitlines()
        last = told[-1] if told else "it said nothing"
        code = process.returncode
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        return f"ended the compiler {how} ({last}); run `make setup`, then try again"

    def _end(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            process.wait(END_TIMEOUT_S if process.poll() is not None else 0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_TIMEOUT_S)


def problem(where: str, error: CompilerError) -> Problem:
    what, _, fix = str(error).rpartition("; ")
    return Problem(where, what, fix)
