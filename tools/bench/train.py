"""What saving costs a training run: its steps with checkpoints against the same without.

    python tools/bench/train.py

Plain JAX on 8 CPU devices, one process: data 2 x fsdp 2 x tensor 2, a model of some 6 million
parameters, checkpoints on the local disk. Rounds with one save and without take turns, so that
whatever else the machine does hits both. Prints a table and writes .bench/train.json.
"""

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from workloads.settings import ModelSettings, TrainMesh, TrainSettings

FOLDER = Path(__file__).parents[2] / ".bench"
ROUNDS, STEPS, LENGTH = 5, 20, 128
SETTINGS = TrainSettings(
    mesh=TrainMesh(data=2, fsdp=2, tensor=2),
    model=ModelSettings(hidden_size=256, intermediate_size=768, layers=6, head_dim=32),
    steps=2 * ROUNDS * STEPS + STEPS,
    global_batch=16,
    checkpoint_every=STEPS,
)


def main() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    with tempfile.TemporaryDirectory() as folder:
        figures = _measure(folder)
    FOLDER.mkdir(exist_ok=True)
    FOLDER.joinpath("train.json").write_text(json.dumps(figures, indent=2))
    table = Table("what", "measured")
    for what, value in figures.items():
        table.add_row(what, f"{value:,.4g}")
    Console().print(table)


def _measure(folder: str) -> dict[str, float]:
    import jax
    import numpy as np

    from workloads.model import sharding
    from workloads.model.config import ModelConfig
    from workloads.train.checkpoints import Checkpoints
    from workloads.train.step import make_trainer

    config = ModelConfig.of(SETTINGS.model, vocab_size=2048, max_position_embeddings=LENGTH)
    trainer = make_trainer(SETTINGS, config, sharding.make_mesh(SETTINGS.mesh))
    shape = (SETTINGS.global_batch, LENGTH + 1)
    rows = np.random.default_rng(0).integers(0, config.vocab_size, shape, np.int32)
    tokens = jax.device_put(rows, trainer.batch)
    plain_s, saving_s, blocked_s = [], [], []
    with Checkpoints(f"{folder}/checkpoints", keep=1) as checkpoints:
        state = _steps(trainer, trainer.init(), tokens)  # compiles
        checkpoints.save(0, state)  # as does the first save
        checkpoints.wait()
        for index in range(ROUNDS):
            began = time.monotonic()
            state = _steps(trainer, state, tokens)
            plain_s.append(time.monotonic() - began)
            began = time.monotonic()
            checkpoints.save(index + 1, state)
            blocked_s.append(time.monotonic() - began)
            state = _steps(trainer, state, tokens)
            saving_s.append(time.monotonic() - began)
            checkpoints.wait()
    plain, saving = statistics.median(plain_s), statistics.median(saving_s)
    return {
        "parameters, million": sum(leaf.size for leaf in jax.tree.leaves(state.params)) / 1e6,
        "step, ms": plain / STEPS * 1e3,
        "save returns after, ms": statistics.median(blocked_s) * 1e3,
        f"{STEPS} steps with a save / without": saving / plain,
    }


def _steps(trainer: Any, state: Any, tokens: Any) -> Any:
    import jax

    for _ in range(STEPS):
        state, _ = trainer.train(state, tokens)
    jax.block_until_ready(state.params)
    return state


if __name__ == "__main__":
    main()
