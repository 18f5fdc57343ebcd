"""Measures the way of data: batch inference against a plain loop, and how long training waits.

    python tools/bench/data.py

A simulated slice of one host goes up for it. The plain loop runs the same programs on the same
batches in one process: prompts in memory, no files, no Ray. Prints a table and writes
.bench/data.json.
"""

import json
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.bench.simulated import (
    CONTRACT,
    FOLDER,
    IN_ONE_PROCESS,
    MESH,
    VOCABULARY,
    make_model,
    run,
    sentences,
    simulated,
)
from workloads.settings import InferSettings, MeshSettings, ModelSettings, TrainMesh, TrainSettings

WORK = FOLDER / "data"
MODEL = ModelSettings(
    layers=2,
    hidden_size=128,
    intermediate_size=256,
    attention_heads=4,
    key_value_heads=4,
    head_dim=32,
)
PARTS = 10
INFER = InferSettings(
    prompts=(str(WORK / "prompts.jsonl"),),
    mesh=MeshSettings(**MESH),
    batch_size=32,
    rows_per_part=128,
    max_sequence_length=128,
    max_tokens=64,
    dtype="float32",
)
TRAIN = TrainSettings(
    model=MODEL,
    mesh=TrainMesh(**MESH),
    steps=120,
    global_batch=32,
    evaluate_every=1000,
    checkpoint_every=1000,
    dtype="float32",
)


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    console = Console()
    with console.status("a plain loop over prompts"):
        plain = run(IN_ONE_PROCESS, __file__, "plain")
    figures: dict[str, Any] = {"plain loop, rows/s": float(plain.split()[-1])}
    with console.status("a simulated slice"), simulated(WORK) as tpu:
        slice_ = ("--slice", CONTRACT.to_json())
        console.print("batch inference, then training")
        model, answers = str(WORK / "model"), str(WORK / "answers")
        settings = ("--settings", INFER.model_dump_json())
        _job(tpu.driver, "infer", *slice_, *settings, "--model", model, "--output", answers)
        corpus = str(WORK / "corpus")
        settings = json.dumps({"vocab_size": VOCABULARY, "sequence_length": 128})
        _job(tpu.driver, "data", "--settings", settings, "--output", corpus)
        how = ("--settings", TRAIN.model_dump_json(), "--corpus", corpus)
        _job(tpu.driver, "train", *slice_, *how, "--output", str(WORK / "run"))
    inferred = json.loads((WORK / "answers/result.json").read_text())["rows_per_s"]
    trained = json.loads((WORK / "run/result.json").read_text())
    figures |= {
        "batch inference, rows/s": inferred,
        "batch inference / plain loop": inferred / figures["plain loop, rows/s"],
        "training, tokens/s": trained["tokens_per_s"],
        "part of step time waiting for data": trained["waited"],
    }
    FOLDER.joinpath("data.json").write_text(json.dumps(figures, indent=2))
    table = Table("what", "measured")
    for what, value in figures.items():
        table.add_row(what, f"{value:,.4f}" if value < 1 else f"{value:,.1f}")
    console.print(table)


def _job(environment: dict[str, str], kind: str, *arguments: str) -> None:
    run(environment, "-m", f"workloads.{kind}.main", *arguments)


def _plain() -> None:
    """Makes the model and the prompts, and completes these. Prints rows a second."""
    import jax.numpy as jnp
    import numpy as np
    from tokenizers import Tokenizer

    from workloads.infer.compute import Computer
    from workloads.infer.plan import batches
    from workloads.model import hf, sharding
    from workloads.serve.batch import prefill_lengths

    prompts = sentences(make_model(MODEL, WORK / "model"), PARTS * INFER.rows_per_part)
    lines = (json.dumps({"id": i, "prompt": text}) for i, text in enumerate(prompts))
    Path(INFER.prompts[0]).write_text("\n".join(lines))

    tokenizer = Tokenizer.from_file(str(WORK / "model/tokenizer.json"))
    mesh = sharding.make_mesh(MeshSettings(**MESH))
    computer = Computer(hf.load(WORK / "model", mesh, dtype=jnp.float32), INFER)
    widths = prefill_lengths(INFER.longest_prompt)
    seeds = np.zeros(INFER.batch_size, np.uint32)
    rates: list[float] = []
    for part in range(PARTS):
        chosen = prompts[part * INFER.rows_per_part : (part + 1) * INFER.rows_per_part]
        started = time.monotonic()
        encoded = [encoding.ids for encoding in tokenizer.encode_batch(chosen)]
        for batch in batches(encoded, INFER.batch_size, widths):
            tokens, counts = computer.generate(batch, seeds)
            rows = zip(tokens, counts, strict=True)
            tokenizer.decode_batch([row[:count].tolist() for row, count in rows])
        if part:  # the first compiles
            rates.append(len(chosen) / (time.monotonic() - started))
    sys.stdout.write(f"{statistics.harmonic_mean(rates):.3f}\n")


if __name__ == "__main__":
    _plain() if sys.argv[1:] == ["plain"] else main()
