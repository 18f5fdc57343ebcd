"""Measures `raytpu render` of all stacks in one call, as a user waits for it.

    make bench

Prints a table and writes .bench/render.json.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".bench"
RUNS = 5
MODULES = ("infra.cli.render", "infra.gke.plan", "infra.ray.objects")
"""What the command imports, Pulumi's SDKs among it."""


def main() -> None:
    stacks = [path for path in ROOT.glob("stacks/**/Pulumi.*.yaml") if path.stem != "Pulumi.local"]
    with tempfile.TemporaryDirectory() as out:
        raytpu = str(Path(sys.executable).with_name("raytpu"))
        imports = [sys.executable, "-c", f"import {', '.join(MODULES)}"]
        figures = {
            f"raytpu render of {len(stacks)} stacks, s": _median_s(
                [raytpu, "render", *map(str, stacks), "--out", out]
            ),
            "of it: Python and its imports, s": _median_s(imports),
        }
    FOLDER.mkdir(exist_ok=True)
    FOLDER.joinpath("render.json").write_text(json.dumps(figures, indent=2))
    table = Table("what", "measured")
    for what, value in figures.items():
        table.add_row(what, f"{value:.2f}")
    Console().print(table)


def _median_s(command: list[str]) -> float:
    """Of runs after a first one, which may have to compile the modules."""
    return statistics.median([_seconds(command) for _ in range(RUNS + 1)][1:])


def _seconds(command: list[str]) -> float:
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return time.monotonic() - started


if __name__ == "__main__":
    main()
