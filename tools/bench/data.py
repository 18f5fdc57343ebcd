"""Measures the way of data: batch inference against a plain loop, and how long training waits.

    python tools/bench/data.py

A simulated slice of one host goes up for it. The plain loop runs the same programs on the same
batches in one process: prompts in memory, no files, no Ray. Prints a table and writes
.bench/data.json.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from infra.local import ports, processes, ray_node
from infra.local.workspace import Workspace
from infra.tpu.slice import SliceSpec, TpuSlice
from workloads.settings import InferSettings, MeshSettings, ModelSettings, TrainMesh, TrainSettings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".bench"
WORK = FOLDER / "data"
LIMIT_S = 1800
SPEC = SliceSpec(name="bench", machine_type="ct6e-standard-4t", topology="2x2")
MESH = {"data": 2, "tensor": 2}
MODEL = ModelSettings(
    layers=2,
    hidden_size=128,
    intermediate_size=256,
    attention_heads=4,
    key_value_heads=4,
    head_dim=32,
)
VOCABULARY = 1024
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
    tpu = TpuSlice.resolve(SPEC).contract()
    console = Console()
    with console.status("a plain loop over prompts"):
        devices = f"--xla_force_host_platform_device_count={tpu.devices_per_host}"
        plain = _run({"JAX_PLATFORMS": "cpu", "XLA_FLAGS": devices}, __file__, "plain")
    figures: dict[str, Any] = {"plain loop, rows/s": float(plain.split()[-1])}
    with console.status("a simulated slice"), _slice() as address:
        environment = {"RAY_ADDRESS": address, "JAX_PLATFORMS": "cpu"}
        slice_ = ("--slice", tpu.to_json())
        console.print("batch inference, then training")
        model, answers = str(WORK / "model"), str(WORK / "answers")
        settings = ("--settings", INFER.model_dump_json())
        _job(environment, "infer", *slice_, *settings, "--model", model, "--output", answers)
        corpus = str(WORK / "corpus")
        settings = json.dumps({"vocab_size": VOCABULARY, "sequence_length": 128})
        _job(environment, "data", "--settings", settings, "--output", corpus)
        run = ("--settings", TRAIN.model_dump_json(), "--corpus", corpus)
        _job(environment, "train", *slice_, *run, "--output", str(WORK / "run"))
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


@contextmanager
def _slice() -> Iterator[str]:
    """The address of a head with one simulated slice."""
    workspace = Workspace(str(ROOT), "bench-data", str(WORK))
    tpu = TpuSlice.resolve(SPEC).contract()
    try:
        workspace.prepare()
        address = ray_node.start_head(
            workspace.mark_of("head"),
            workspace.node("head"),
            cpus=4,
            dashboard_port=ports.choose(None, ""),
        )
        ray_node.start_host(
            workspace.mark_of("bench-0"),
            workspace.node("bench-0"),
            address=address,
            tpu_chips=tpu.chips_per_host,
            environment=ray_node.host_environment(tpu, 0, "bench-0"),
        )
        yield address
    finally:
        processes.end(workspace.mark)
        workspace.clear()


def _job(environment: dict[str, str], kind: str, *arguments: str) -> None:
    _run(environment, "-m", f"workloads.{kind}.main", *arguments)


def _run(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)[:80]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _plain() -> None:
    """Makes the model and the prompts, and completes these. Prints rows a second."""
    import jax.numpy as jnp
    import numpy as np

    from workloads.data import tokenizer
    from workloads.data.sources import BUILT_IN, Document, Source, read
    from workloads.infer.compute import Computer
    from workloads.infer.plan import batches
    from workloads.model import hf, sharding
    from workloads.model.config import ModelConfig
    from workloads.serve.batch import prefill_lengths

    texts = [one.text for one in read(Source(BUILT_IN, 0), "text") if isinstance(one, Document)]
    trained = tokenizer.train(texts, VOCABULARY)
    trained.save(str(WORK / "tokenizer.json"))
    mesh = sharding.make_mesh(MeshSettings(**MESH))
    config = ModelConfig.of(
        MODEL, vocab_size=VOCABULARY, max_position_embeddings=256, eos_token_ids=(0, 2)
    )
    made = sharding.init_sharded(config, mesh, seed=0)
    hf.export(made, WORK / "model", tokenizer_json=WORK / "tokenizer.json", dtype=jnp.float32)
    prompts = _prompts(texts)
    lines = (json.dumps({"id": i, "prompt": text}) for i, text in enumerate(prompts))
    Path(INFER.prompts[0]).write_text("\n".join(lines))

    computer = Computer(hf.load(WORK / "model", mesh, dtype=jnp.float32), INFER)
    widths = prefill_lengths(INFER.longest_prompt)
    seeds = np.zeros(INFER.batch_size, np.uint32)
    rates: list[float] = []
    for part in range(PARTS):
        chosen = prompts[part * INFER.rows_per_part : (part + 1) * INFER.rows_per_part]
        started = time.monotonic()
        encoded = [encoding.ids for encoding in trained.encode_batch(chosen)]
        for batch in batches(encoded, INFER.batch_size, widths):
            tokens, counts = computer.generate(batch, seeds)
            rows = zip(tokens, counts, strict=True)
            trained.decode_batch([row[:count].tolist() for row, count in rows])
        if part:  # the first compiles
            rates.append(len(chosen) / (time.monotonic() - started))
    sys.stdout.write(f"{statistics.harmonic_mean(rates):.3f}\n")


def _prompts(texts: list[str]) -> list[str]:
    """Beginnings of sentences, some short and some long."""
    words = " ".join(texts).split()
    count = PARTS * INFER.rows_per_part
    return [" ".join(words[7 * i : 7 * i + 3 + i % 15]) for i in range(count)]


if __name__ == "__main__":
    _plain() if sys.argv[1:] == ["plain"] else main()
