"""Measures `raytpu review` of 1,000 documents, and what the policy pack adds to a preview.

    make bench

The preview is of the dev stack, on the real engine with the tests' stand-in cloud. Prints a table
and writes .bench/review.json.
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
DOCUMENTS = 1000
REFUSED = 1
"""The exit code: documents alone are in no namespace with a network policy."""


def main() -> None:
    figures = {f"raytpu review of {DOCUMENTS} documents, s": _review_s()}
    plain, judged = _preview_s()
    figures["preview, s"] = plain
    figures["preview with the pack, s"] = judged
    figures["what the pack adds, %"] = 100 * (judged / plain - 1)
    FOLDER.mkdir(exist_ok=True)
    FOLDER.joinpath("review.json").write_text(json.dumps(figures, indent=2))
    table = Table("what", "measured")
    for what, value in figures.items():
        table.add_row(what, f"{value:.2f}")
    Console().print(table)


def _review_s() -> float:
    """Of Ray's kinds as our own stacks render them: about 120 lines each."""
    texts = [path.read_text() for path in sorted(ROOT.glob("tests/golden/*/kubernetes/ray*.yaml"))]
    with tempfile.TemporaryDirectory() as folder:
        many = [texts[index % len(texts)] for index in range(DOCUMENTS)]
        Path(folder, "many.yaml").write_text("---\n".join(many))
        raytpu = str(Path(sys.executable).with_name("raytpu"))
        return statistics.median(_seconds([raytpu, "review", folder]) for _ in range(RUNS))


def _seconds(command: list[str]) -> float:
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != REFUSED:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr}")
    return time.monotonic() - started


def _preview_s() -> tuple[float, float]:
    """Without and with the pack, in turn, so that a busy machine slows both."""
    sys.path.insert(0, str(ROOT))
    from tests.gke.journey import prepare

    taken: dict[tuple[str, ...], list[float]] = {(): [], ("--policy-pack", "policies"): []}
    with tempfile.TemporaryDirectory() as folder:
        stack = prepare("dev", Path(folder))
        (Path(folder) / "policies").symlink_to(ROOT / "policies")
        (Path(folder) / "uv.lock").symlink_to(ROOT / "uv.lock")
        with stack.cloud:
            for _ in range(RUNS):
                for options, seconds in taken.items():
                    started = time.monotonic()
                    done = stack.preview(*options)
                    seconds.append(time.monotonic() - started)
                    if done.code:
                        sys.exit(f"pulumi preview failed:\n{done.output[-2000:]}")
    plain, judged = (statistics.median(seconds) for seconds in taken.values())
    return plain, judged


if __name__ == "__main__":
    main()
