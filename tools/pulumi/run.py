"""Runs one command in the project's environment and stands by it: what tools/run starts.

A terminal's Ctrl-C reaches `pulumi`, but not the providers: the engine waits for each resource in
the making, and a training run takes minutes. So the interrupt is passed on as a file: the variable
RAYTPU_INTERRUPT_FILE names a path that exists as soon as there was one.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from environment import backend, resolve, state
from heal import end_orphans

INTERRUPT_VARIABLE = "RAYTPU_INTERRUPT_FILE"
NOT_FOUND = 127
"""The exit code that shells give for a command that is not there."""


def run(command: list[str], root: Path) -> int:
    """Runs `command` to its end; returns its exit code, or 128 + the signal that ended it."""
    environ = resolve(os.environ, root)
    if environ.get("PULUMI_BACKEND_URL") == backend(root):
        state(root).mkdir(parents=True, exist_ok=True)
    interrupt = root / ".raytpu/interrupts" / str(os.getpid())
    interrupt.parent.mkdir(parents=True, exist_ok=True)
    interrupt.unlink(missing_ok=True)
    # The terminal sends these two to the command as well.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: interrupt.touch())
    child = subprocess.Popen(command, env={**environ, INTERRUPT_VARIABLE: str(interrupt)})

    def pass_on(*_: object) -> None:
        interrupt.touch()
        child.terminate()

    signal.signal(signal.SIGTERM, pass_on)
    code = child.wait()
    interrupt.unlink(missing_ok=True)
    if code < 0:
        end_orphans(root)
        return 128 - code
    return code


def main(argv: list[str]) -> int:
    if not argv:
        sys.stderr.write("tools/run: say what to run, e.g. tools/run pulumi preview -s local\n")
        return 2
    root = Path(__file__).parents[2]
    try:
        return run(argv, root)
    except FileNotFoundError:
        sys.stderr.write(f"tools/run: there is no {argv[0]!r} on PATH; run `make setup`\n")
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
