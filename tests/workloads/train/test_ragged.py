"""Rows at an epoch's end that fill no batch: what a step makes of padding, and what is refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from workloads.model import sharding
from workloads.settings import TrainMesh, TrainSettings
from workloads.train.step import make_trainer
from workloads.train.stream import PADDING

MESH = TrainMesh(data=4)


def one_step(tiny_config, devices, tokens, **changes):
    settings = TrainSettings(
        mesh=MESH, steps=9, warmup_steps=1, dtype="float32", global_batch=len(tokens), **changes
    )
    shallow = replace(tiny_config, layers=1)
    trainer = make_trainer(settings, shallow, sharding.make_mesh(MESH, devices[:4]))
    state, loss = trainer.train(trainer.init(), jax.device_put(tokens, trainer.batch))
    state, _ = trainer.train(state, jax.device_put(tokens, trainer.batch))  # the first has rate 0
    return float(loss), jax.device_get(state.params)


@pytest.mark.parametrize("accumulated", [1, 2])
def test_rows_of_padding_change_neither_loss_nor_update(tiny_config, devices, accumulated):
    real = np.random.default_rng(0).integers(0, 320, (4, 17)).astype(np.int32)
    padded = np.full((8, 17), PADDING, np.int32)
    padded[[0, 1, 4, 6]] = real
    alone = one_step(tiny_config, devices, real)
    among = one_step(
        tiny_config,
        devices,
        padded,
        ragged_batch="pad",
        gradient_accumulation_steps=accumulated,
    )
    assert among[0] == pytest.approx(alone[0], rel=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), among[1], alone[1])
