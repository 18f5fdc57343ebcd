"""Rows at an epoch's end that fill no batch: what a step makes of padding, and what is refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from tests.workloads.simulated import CONTRACT
from workloads.data.corpus import Corpus, Split
from workloads.errors import UserError
from workloads.model import sharding
from workloads.settings import TrainMesh, TrainSettings
from workloads.train.job import Job
from workloads.train.step import make_trainer
from workloads.train.stream import PADDING, blocks

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


def job(tokenizer_json, rows, batch, ragged):
    text = Split(documents=2, text_bytes=9, tokens=9, rows=rows, left_out_tokens=0, parts=())
    corpus = Corpus(
        digest="",
        settings_digest="",
        vocab_size=320,
        sequence_length=16,
        rows_per_group=64,
        train=text,
        held_out=text,
        bytes_per_token=1,
        unigram_entropy=1,
        held_out_entropy=1,
    )
    settings = TrainSettings(
        mesh=TrainMesh(data=8), steps=99, global_batch=batch, ragged_batch=ragged
    )
    return Job(CONTRACT, settings, corpus, str(tokenizer_json.parent), "out")


def faults(made):
    try:
        made.check()
    except UserError as error:
        return error.faults
    return ()


# Rows, global batch on 8 chips of 2 hosts, setting, and what is said of it.
CASES = [
    (100, 16, "carry", None),
    (100, 16, "drop", None),
    (100, 16, "pad", None),
    (100, 16, "raise", "ragged_batch: 100 rows of training text are no whole number of batches of"),
    (96, 16, "raise", None),
    (100, 12, "carry", "global_batch: 12 rows do not divide over 8 chips; use 8 or 16"),
    (97, 16, "raise", "16, 1 are left; use carry, drop or pad, or another global_batch"),
    (1, 8, "carry", None),
    (1, 8, "pad", None),
    (1, 8, "drop", "ragged_batch: drop leaves nothing of 1 rows, which fill no batch of 8; use"),
]


@pytest.mark.parametrize(("rows", "batch", "ragged", "words"), CASES)
def test_rows_that_fill_no_batch_are_treated_as_the_settings_say_or_refused(
    tokenizer_json, rows, batch, ragged, words
):
    found = faults(job(tokenizer_json, rows, batch, ragged))
    assert bool(found) == (words is not None)
    assert words is None or any(words in fault for fault in found)


def test_mesh_and_batch_of_a_job_count_the_devices_of_its_chips(tokenizer_json):
    """The eight chips of this slice as tpu7x would have them."""
    there = replace(CONTRACT, devices_per_chip=2)
    told = "16 devices (8 chips of 2)"
    assert faults(replace(job(tokenizer_json, 96, 24, "carry"), contract=there)) == (
        f"mesh: data 8 x tensor 1 is 8, but slice drill has {told}; make the product 16",
        f"global_batch: 24 rows do not divide over {told}; use 16 or 32",
    )


def test_hosts_take_the_same_steps_whatever_the_rows(tokenizer_json):
    """1003 rows of 4 hosts of batch 8: a split of the rows would leave some hosts a step short."""
    batches = replace(job(tokenizer_json, 1003, 32, "pad").batches, hosts=4)
    made = blocks(batches, range(batches.epoch_rows(1003) // 32))
    steps = {host: sum(len(block.steps) for block in made[host::4]) for host in range(4)}
    assert steps == {0: 32, 1: 32, 2: 32, 3: 32}
