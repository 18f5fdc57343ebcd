"""How long a training run stands still when a host is lost.

    python tools/bench/resume.py

A run on a simulated slice of two hosts. One is killed, and a new one is there at once, so that
what is measured is Ray's and ours: to notice, to end the attempt, to start the next and to restore.
Beside it what one has without a trainer that resumes: the same job started anew by hand, from its
command to the same line. Prints a table and writes .bench/resume.json.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from infra.tpu.slice import SliceSpec, TpuSlice
from tools.bench.simulated import FOLDER, LIMIT_S, VOCABULARY, Simulated, run, simulated
from workloads.settings import ModelSettings, TrainMesh, TrainSettings

WORK = FOLDER / "resume"
SPEC = SliceSpec(name="bench", machine_type="ct5p-hightpu-4t", topology="2x2x2")
CONTRACT = TpuSlice.resolve(SPEC).contract()
LOST_AFTER, RESUMED = "step 25/", "resuming after step"
TRAIN = TrainSettings(
    mesh=TrainMesh(data=4, tensor=2),
    model=ModelSettings(
        layers=1,
        hidden_size=32,
        intermediate_size=64,
        attention_heads=2,
        key_value_heads=2,
        head_dim=16,
    ),
    steps=100_000,
    global_batch=16,
    checkpoint_every=10,
    log_every=5,
    dtype="float32",
)


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    console = Console()
    with console.status("a run that loses a host"), simulated(WORK, CONTRACT) as tpu:
        settings = json.dumps({"vocab_size": VOCABULARY, "sequence_length": 32})
        data = ("--settings", settings, "--output", str(WORK / "corpus"))
        run(tpu.driver, "-m", "workloads.data.main", *data)
        with _training(tpu) as told:
            _line(told, LOST_AFTER)
            lost_at = time.monotonic()
            tpu.lose(1)
            tpu.start(1)
            there_s = time.monotonic() - lost_at
            _line(told, RESUMED)
            resumed_s = time.monotonic() - lost_at
            _line(told, "step ")
            stood_s = time.monotonic() - lost_at
        began = time.monotonic()
        with _training(tpu) as told:
            _line(told, RESUMED)
            _line(told, "step ")
            anew_s = time.monotonic() - began
    figures = {
        "new host there after, s": there_s,
        "state restored after, s": resumed_s,
        "next step told after, s": stood_s,
        "the job started anew by hand, s": anew_s,
        "resumed / started anew": stood_s / anew_s,
    }
    FOLDER.joinpath("resume.json").write_text(json.dumps(figures, indent=2))
    table = Table("what", "measured")
    for what, value in figures.items():
        table.add_row(what, f"{value:,.2f}")
    console.print(table)


@contextmanager
def _training(tpu: Simulated) -> Iterator[Iterator[str]]:
    """The lines of a run, which is ended with the block."""
    where = ("--corpus", str(WORK / "corpus"), "--output", str(WORK / "train" / "run"))
    told = ("--slice", tpu.contract.to_json(), "--settings", TRAIN.model_dump_json())
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "workloads.train.main", *told, *where],
        env={**os.environ, **tpu.driver},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as job:
        try:
            yield iter(job.stdout or ())
        finally:
            job.kill()


def _line(told: Iterator[str], what: str) -> None:
    """Reads on until a line begins so, after the log's own mark."""
    deadline = time.monotonic() + LIMIT_S
    seen: list[str] = []
    for line in told:
        seen.append(line)
        if f"raytpu | {what}" in line or (what == RESUMED and what in line):
            return
        if time.monotonic() > deadline:
            break
    sys.exit(f"no line with {what!r}:\n{''.join(seen)}")


if __name__ == "__main__":
    main()
