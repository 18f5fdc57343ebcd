"""Measures the local stack: times, memory, and training against plain JAX.

    make bench

A stack of its own goes up from nothing as `make up` does it, is asked once, goes up again with
nothing to do, and is destroyed; then the same training step runs without Ray. Prints a table and
writes .bench/local.json.
"""

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from infra import config
from infra.config import TrainSpec, stackfile
from infra.local import processes
from infra.local.workspace import Workspace

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".bench"
PROJECT = FOLDER / "project"
"""The project's program with a state and storage of its own."""
LINKS = (".tools", ".venv", "Pulumi.yaml", "infra", "tools", "workloads")
STACK = "local"
PLAIN_STEPS = 60
UP_LIMIT_S = 1800
PHASES = {
    "head up": ("local-head",),
    "slices up": ("local-train-0", "local-chat-0"),
    "data job": ("local-corpus",),
    "training job": ("local-pretrain",),
    "serve up": ("local-serve",),
}


class MemoryPeak(threading.Thread):
    """Samples what the stack's processes hold; a page that they share counts once."""

    def __init__(self, mark: str) -> None:
        super().__init__(daemon=True)
        self.mark, self.gib = mark, 0.0
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(2.0):
            self.gib = max(self.gib, sum(map(_pss, processes.find(self.mark))) / 2**30)

    def stop(self) -> float:
        self._done.set()
        self.join()
        return self.gib


def main() -> None:
    shutil.rmtree(PROJECT, ignore_errors=True)
    (PROJECT / "stacks").mkdir(parents=True)
    for name in LINKS:
        (PROJECT / name).symlink_to(ROOT / name)
    file = Path(shutil.copy(ROOT / f"stacks/Pulumi.{STACK}.yaml", PROJECT / "stacks"))
    declared = config.load(stackfile.read(file), stack=STACK, encrypted=True)
    if not isinstance(declared.cluster, config.LocalCluster):
        sys.exit(f"{file}: its mode is {declared.cluster.mode}; the bench measures mode local")
    workspace = Workspace(str(PROJECT), STACK, str(PROJECT / declared.cluster.folder(STACK)))
    console = Console()
    figures: dict[str, Any] = {}
    try:
        with console.status("a stack goes up from nothing"):
            figures |= _cold(workspace)
        with console.status("up again"):
            figures["up again, nothing to do, s"] = _timed("up", "--refresh")[0]
    finally:
        with console.status("destroying it"):
            _timed("destroy")
    with console.status("the same step in plain JAX"):
        figures |= _against_plain(declared, Path(workspace.storage))
    FOLDER.joinpath("local.json").write_text(json.dumps(figures, indent=2))
    table = Table("what", "measured")
    for what, value in figures.items():
        table.add_row(what, f"{value:,.2f}" if value < 100 else f"{value:,.0f}")  # noqa: PLR2004
    console.print(table)


def _cold(workspace: Workspace) -> dict[str, float]:
    _pulumi("stack", "select", "--create")
    peak = MemoryPeak(workspace.mark)
    peak.start()
    started = time.monotonic()
    _, output = _timed("up", "--refresh")
    FOLDER.joinpath("up.log").write_text(output)
    urls = json.loads(_pulumi("stack", "output", "--json", "urls"))
    body = {"model": "chat", "prompt": "The", "max_tokens": 8}
    httpx.post(f"{urls['chat']}/completions", json=body, timeout=60).raise_for_status()
    answered_s = time.monotonic() - started
    phases = {
        f"{phase}, s": max(_created_s(output, name) for name in names)
        for phase, names in PHASES.items()
    }
    return {
        "up from nothing to the first answer, s": answered_s,
        **phases,
        "cluster of 5 hosts up, s": phases["head up, s"] + phases["slices up, s"],
        "peak memory, GiB": peak.stop(),
    }


def _against_plain(declared: config.StackConfig, storage: Path) -> dict[str, float]:
    spec = next(w for w in declared.workloads if isinstance(w, TrainSpec))
    [result] = (storage / spec.name).glob("*/result.json")
    with_ray = json.loads(result.read_text())["tokens_per_s"]
    command = [
        sys.executable,
        str(Path(__file__).with_name("plain_jax.py")),
        declared.slice(spec.slice).contract().to_json(),
        spec.settings().model_dump_json(),
        str(storage / str(spec.data)),
        str(PLAIN_STEPS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=UP_LIMIT_S)
    plain = float(done.stdout.split()[-1])
    return {
        "training with Ray, tokens/s": with_ray,
        "training in plain JAX, tokens/s": plain,
        "with Ray / plain JAX": with_ray / plain,
    }


def _timed(verb: str, *options: str) -> tuple[float, str]:
    started = time.monotonic()
    output = _pulumi(verb, "--yes", "--skip-preview", "--color=never", *options)
    return time.monotonic() - started, output


def _pulumi(*arguments: str) -> str:
    done = subprocess.run(
        [str(PROJECT / "tools/run"), "pulumi", *arguments, "--stack", STACK],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=UP_LIMIT_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"pulumi {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _created_s(output: str, name: str) -> float:
    """As the engine tells it, e.g. "local-head created (17s)" or "(1m2s)"."""
    found = re.search(rf" {name} created \((?:(\d+)m)?([\d.]+)s\)", output)
    if found is None:
        sys.exit(f"the engine did not say when {name} was created:\n{output}")
    return 60 * int(found[1] or 0) + float(found[2])


def _pss(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


if __name__ == "__main__":
    main()
