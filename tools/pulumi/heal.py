"""Clears what a killed `pulumi` left behind, before the next one starts.

After a SIGKILL (or a power cut) the engine's provider processes go on creating resources, and its
lock stays in the backend. Only what is certainly dead is touched: processes of this project that no
`pulumi` leads any more, and a lock whose holder was a process of this machine that is gone.

    tools/run python tools/pulumi/heal.py STACK
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil
import yaml
from environment import ROOT_VARIABLE

PLUGINS = ("pulumi.dynamic", "pulumi-language-python", "pulumi-resource-pulumi-python")
"""Words in the command lines of the engine's processes, and not in those a provider starts."""
GRACE_S = 5.0
CANCEL_LIMIT_S = 60


def orphans(root: Path) -> Iterator[psutil.Process]:
    """Plugin processes of the project at `root` whose engine is gone."""
    for process in psutil.process_iter():
        try:
            if (
                any(word in " ".join(process.cmdline()) for word in PLUGINS)
                and process.environ().get(ROOT_VARIABLE) == str(root)
                and not any(parent.name() == "pulumi" for parent in process.parents())
            ):
                yield process
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue  # of another user, or gone meanwhile


def end_orphans(root: Path) -> int:
    """Ends them and returns how many there were."""
    found = list(orphans(root))
    for process in found:
        process.terminate()
    _, alive = psutil.wait_procs(found, timeout=GRACE_S)
    for process in alive:
        process.kill()
    return len(found)


def holder_is_gone(lock: Path) -> bool:
    """Whether the process that wrote `lock` ran on this machine and runs no more."""
    holder = json.loads(lock.read_text())
    if holder["hostname"] != socket.gethostname():
        return False
    try:
        started_s = psutil.Process(holder["pid"]).create_time()
    except psutil.NoSuchProcess:
        return True
    # A process younger than the lock is another one that was given the same number.
    return started_s > datetime.fromisoformat(holder["timestamp"]).timestamp()


def locks(backend: str, project: str, stack: str) -> list[Path]:
    """The lock files of a stack in a backend of files; none in any other backend."""
    if not backend.startswith("file://"):
        return []
    folder = Path(backend.removeprefix("file://").partition("?")[0]).expanduser()
    name = stack.rpartition("/")[2]
    return sorted(folder.glob(f".pulumi/locks/organization/{project}/{name}/*.json"))


def main(argv: list[str]) -> int:
    """Returns 0 also if a live process holds the lock: `pulumi` itself says so best."""
    if len(argv) != 1:
        sys.stderr.write("heal.py: say which stack: tools/run python tools/pulumi/heal.py STACK\n")
        return 2
    root = Path(os.environ[ROOT_VARIABLE])
    if ended := end_orphans(root):
        sys.stderr.write(f"ended {ended} processes of a `pulumi` that was killed\n")
    project = yaml.safe_load((root / "Pulumi.yaml").read_text())["name"]
    held = locks(os.environ.get("PULUMI_BACKEND_URL", ""), project, argv[0])
    if held and all(holder_is_gone(lock) for lock in held):
        sys.stderr.write(f"the lock of stack {argv[0]} is from a `pulumi` that was killed\n")
        command = ["pulumi", "cancel", "--yes", "--cwd", str(root), "--stack", argv[0]]
        return subprocess.run(command, timeout=CANCEL_LIMIT_S, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
