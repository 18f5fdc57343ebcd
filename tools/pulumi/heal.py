"""Clears what a killed `pulumi` left behind, before the next one starts.

After a SIGKILL (or a power cut) the engine's provider processes go on creating resources, and its
lock stays in the backend. Only what is certainly dead is touched: processes of this project that no
`pulumi` leads any more, and a lock whose holder was a process of this machine that is gone.

The state also keeps what was in the making, and every later run warns of it. With --forget-pending
that is dropped; only for stacks whose providers cope with their own leftovers, as local ones do.
With --local any other stack is refused: what costs money is not changed without a preview.

    tools/run python tools/pulumi/heal.py STACK [--local] [--forget-pending]
"""

import argparse
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

PLUGINS = ("pulumi.dynamic", "pulumi-language-", "pulumi-resource-", "pulumi-analyzer-")
"""Words in the command lines of the engine's processes, and not in those a provider starts."""
GRACE_S = 5.0
COMMAND_LIMIT_S = 120


def is_engine(name: str) -> bool:
    """Whether a process of this name is a CLI (some installers wrap it: `.pulumi-wrapped`)."""
    return "pulumi" in name and not name.startswith(("pulumi-language", "pulumi-resource"))


def orphans(root: Path) -> Iterator[psutil.Process]:
    """Plugin processes of the project at `root` whose engine is gone."""
    for process in psutil.process_iter():
        try:
            if (
                any(word in " ".join(process.cmdline()) for word in PLUGINS)
                and process.environ().get(ROOT_VARIABLE) == str(root)
                and not any(is_engine(parent.name()) for parent in process.parents())
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


def pulumi(*command: str) -> str:
    """What a `pulumi` command prints. Raises CalledProcessError or TimeoutExpired."""
    done = subprocess.run(
        ["pulumi", *command], stdout=subprocess.PIPE, text=True, timeout=COMMAND_LIMIT_S, check=True
    )
    return done.stdout


def is_made(root: Path, stack: str) -> bool:
    """Whether the backend knows the stack: a newcomer's first `make up` finds none."""
    known = json.loads(pulumi("stack", "ls", "--json", "--cwd", str(root)))
    return stack.rpartition("/")[2] in {each["name"].rpartition("/")[2] for each in known}


def heal(root: Path, stack: str, *, forget_pending: bool) -> None:
    """Says on stderr what it clears. A lock that is held stays; `pulumi` names the holder."""
    where = ("--cwd", str(root), "--stack", stack)
    if ended := end_orphans(root):
        sys.stderr.write(f"ended {ended} processes of a `pulumi` that was killed\n")
    project = yaml.safe_load((root / "Pulumi.yaml").read_text())["name"]
    held = locks(os.environ.get("PULUMI_BACKEND_URL", ""), project, stack)
    if held and all(holder_is_gone(lock) for lock in held):
        sys.stderr.write(f"the lock of stack {stack} is from a `pulumi` that was killed\n")
        pulumi("cancel", "--yes", *where)
    if not forget_pending or not is_made(root, stack):
        return
    if json.loads(pulumi("stack", "export", *where))["deployment"].get("pending_operations"):
        sys.stderr.write(f"forgetting what stack {stack} had in the making\n")
        flags = ("--yes", "--skip-preview", "--non-interactive", "--clear-pending-creates")
        pulumi("refresh", *flags, *where)


def is_local(root: Path, stack: str) -> bool:
    """Whether the stack's file says that it runs on this machine. What it says else is not read."""
    project = yaml.safe_load((root / "Pulumi.yaml").read_text())
    name = stack.rpartition("/")[2]
    file = root / project.get("stackConfigDir", ".") / f"Pulumi.{name}.yaml"
    try:
        cluster = yaml.safe_load(file.read_text())["config"]["raytpu:cluster"]
        return cluster["mode"] == "local"
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return True  # the program says what is wrong with it, and changes nothing


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="heal.py", description="Clears up after a killed pulumi")
    parser.add_argument("stack")
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--forget-pending", action="store_true")
    options = parser.parse_args(argv)
    if ROOT_VARIABLE not in os.environ:
        parser.error("start it with tools/run")
    root = Path(os.environ[ROOT_VARIABLE])
    if options.local and not is_local(root, options.stack):
        sys.stderr.write(
            f"{options.stack} does not run on this machine: make would change it without asking; "
            f"use `tools/run pulumi up --stack {options.stack}`, or destroy, and read the preview\n"
        )
        return 2
    try:
        heal(root, options.stack, forget_pending=options.forget_pending)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"heal.py: {error}; its output says why\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
