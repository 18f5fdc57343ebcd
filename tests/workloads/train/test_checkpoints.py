"""Checkpoints of a sharded state: saved in the background, read back onto any mesh."""

import threading

import jax
import numpy as np
import pytest
from orbax.checkpoint._src.path.atomicity import AtomicRenameTemporaryPath

from workloads.model import sharding
from workloads.settings import TrainMesh, TrainSettings
from workloads.train.checkpoints import Checkpoints, latest_step
from workloads.train.step import State, make_trainer


@pytest.fixture
def abstract(devices, tiny_config):
    """The shapes and places of a whole state on a mesh; nothing is compiled for it."""

    def on(mesh):
        settings = TrainSettings(mesh=mesh, steps=9, warmup_steps=1, global_batch=8)
        made = sharding.make_mesh(mesh, devices[: mesh.devices])
        return make_trainer(settings, tiny_config, made).abstract

    return on


def trees(state):
    return state.params, state.optimizer


def random_state(abstract):
    generator = np.random.default_rng(0)

    def made(like):
        values = generator.normal(size=like.shape).astype(like.dtype)
        return jax.device_put(values, like.sharding)

    return State(*jax.tree.map(made, trees(abstract)))


@pytest.mark.parametrize(
    "other",
    [TrainMesh(data=8), TrainMesh(fsdp=8), TrainMesh(data=4), TrainMesh(data=2, fsdp=2)],
    ids=str,
)
def test_what_one_mesh_saved_another_restores(abstract, tmp_path, other):
    saved = random_state(abstract(TrainMesh(data=2, tensor=4)))
    with Checkpoints(str(tmp_path / "c"), keep=1) as checkpoints:
        checkpoints.save(3, saved, counted_s=12.5)
    like = abstract(other)
    with Checkpoints(str(tmp_path / "c"), keep=1) as checkpoints:
        restored = checkpoints.restore(3, like)
        assert checkpoints.counted_s(3) == 12.5

    def same(before, after, wanted):
        assert after.sharding == wanted.sharding
        np.testing.assert_array_equal(np.asarray(after), np.asarray(before))

    jax.tree.map(same, trees(saved), trees(restored), trees(like))


@pytest.mark.timeout(60)
def test_saving_does_not_wait_for_storage(abstract, tmp_path, monkeypatch):
    """Storage holds back the last act of a checkpoint, which makes it a finished one."""
    storage = threading.Event()
    finalize = AtomicRenameTemporaryPath.finalize

    async def held_back(*arguments, **options):
        assert storage.wait(30)
        return await finalize(*arguments, **options)

    monkeypatch.setattr(AtomicRenameTemporaryPath, "finalize", held_back)
    url = str(tmp_path / "c")
    with Checkpoints(url, keep=1) as checkpoints:
        checkpoints.save(3, random_state(abstract(TrainMesh(data=8))))
        assert latest_step(url) == 0
        storage.set()
        checkpoints.wait()
        assert latest_step(url) == 3


def test_what_is_overwritten_after_saving_is_saved_as_it_was(abstract, tmp_path):
    """A step consumes its state while the one before is still being written."""
    state = random_state(abstract(TrainMesh(fsdp=8)))
    expected = jax.tree.map(np.array, trees(state))
    double = jax.jit(lambda tree: jax.tree.map(lambda leaf: 2 * leaf, tree), donate_argnums=0)
    with Checkpoints(str(tmp_path / "c"), keep=1) as checkpoints:
        checkpoints.save(3, state)
        jax.block_until_ready(double(trees(state)))
        checkpoints.wait()
        restored = checkpoints.restore(3, abstract(TrainMesh(fsdp=8)))
    jax.tree.map(np.testing.assert_array_equal, trees(restored), expected)
