"""The compiled steps on eight devices, against one device and against numpy."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from workloads.model import sharding
from workloads.settings import TrainMesh, TrainSettings
from workloads.train.checkpoints import Checkpoints, latest_step
from workloads.train.step import State, learning_rate, make_optimizer, make_trainer

BATCH, LENGTH = 8, 32
MATRICES = ("kernel", "embedding")


def settings(**changes):
    values: dict[str, Any] = {
        "mesh": TrainMesh(data=4, tensor=2),
        "steps": 30,
        "global_batch": BATCH,
        "warmup_steps": 3,
        "learning_rate": 0.01,
        "dtype": "float32",
    }
    return TrainSettings(**values | changes)


def trainer_on(config, devices, mesh=None, **changes):
    mesh = mesh or TrainMesh(data=4, tensor=2)
    chosen = settings(mesh=mesh, **changes)
    return make_trainer(chosen, config, sharding.make_mesh(mesh, devices[: mesh.devices]))


@pytest.fixture(scope="module")
def trainer(devices, tiny_config):
    """One for all claims that need no other: it compiles for a long time."""
    return trainer_on(tiny_config, devices)


def rows(seed, count=BATCH):
    """Rows with something to learn: each token is the one before plus the row's own number."""
    generator = np.random.default_rng(seed)
    start, stride = generator.integers(0, 300, (2, count, 1)) % np.array([[[300]], [[5]]])
    return ((start + stride * np.arange(LENGTH + 1)) % 300).astype(np.int32)


def run(trainer, state, steps):
    losses = []
    for step in steps:
        state, loss = trainer.train(state, jax.device_put(rows(step), trainer.batch))
        losses.append(float(loss))
    return state, losses


def test_the_loss_falls(trainer, tiny_config):
    _, losses = run(trainer, trainer.init(), [0] * 30)
    assert losses[0] == pytest.approx(np.log(tiny_config.vocab_size), abs=0.7)
    assert losses[-1] < losses[0] - 2


@pytest.fixture(scope="module")
def shallow(tiny_config):
    """One layer: what many programs are compiled for."""
    return replace(tiny_config, layers=1)


@pytest.fixture(scope="module")
def on_one_device(devices, shallow):
    """A state at the start, and the losses of a few steps from it, for all others to match."""
    trainer = trainer_on(shallow, devices, TrainMesh())
    start = jax.device_get(trees(trainer.init()))
    return start, run(trainer, trainer.init(), range(4))[1]


def trees(state):
    return (state.params, state.optimizer)


def losses_from(start, trainer):
    placed = jax.tree.map(
        lambda leaf, like: jax.device_put(leaf, like.sharding), start, trees(trainer.abstract)
    )
    return run(trainer, State(*placed), range(4))[1]


@pytest.mark.parametrize(
    ("mesh", "changes"),
    [
        (TrainMesh(data=8), {}),
        (TrainMesh(data=2, tensor=4), {"remat": "layers"}),
        (TrainMesh(data=2, fsdp=2, tensor=2), {}),
        (TrainMesh(fsdp=4), {"gradient_accumulation_steps": 2}),
    ],
    ids=str,
)
def test_the_same_is_learned_however_it_is_computed(devices, shallow, on_one_device, mesh, changes):
    start, expected = on_one_device
    losses = losses_from(start, trainer_on(shallow, devices, mesh, **changes))
    np.testing.assert_allclose(losses, expected, rtol=2e-5)


def test_the_same_is_learned_from_logits_in_chunks(devices, shallow, on_one_device, monkeypatch):
    monkeypatch.setattr("workloads.train.step.LOGITS_AT_ONCE", 12)  # 32: two chunks and a rest
    start, expected = on_one_device
    losses = losses_from(start, trainer_on(shallow, devices, TrainMesh(data=2)))
    np.testing.assert_allclose(losses, expected, rtol=2e-5)


def test_no_device_computes_the_rows_of_others(devices, shallow):
    """Where the batch and a table are both cut by fsdp, XLA may give up and do all on each."""
    mesh = TrainMesh(data=2, fsdp=2, tensor=2)
    text = trainer_on(shallow, devices, mesh).lower(LENGTH).compile().as_text() or ""
    assert f"f32[2,{LENGTH}," in text
    assert f"f32[{BATCH},{LENGTH}," not in text


def test_logits_of_long_rows_are_never_there_at_once(devices, shallow):
    trainer = trainer_on(shallow, devices, TrainMesh())
    vocabulary = shallow.vocab_size
    assert f"{BATCH}x256x{vocabulary}xf32" in trainer.lower(256).as_text()
    text = trainer.lower(512).as_text()
    assert f"x512x{vocabulary}xf32" not in text
    assert f"512x{BATCH}x{vocabulary}xf32" not in text
    assert f"256x{BATCH}x{vocabulary}xf32" in text


@pytest.mark.parametrize(
    ("mesh", "parts"),
    [
        (TrainMesh(data=8), 1),
        (TrainMesh(data=4, tensor=2), 2),
        (TrainMesh(data=2, fsdp=4), 4),
        (TrainMesh(fsdp=4, tensor=2), 8),
    ],
    ids=str,
)
def test_a_device_holds_its_part_of_parameters_and_moments(devices, shallow, mesh, parts):
    for tree in trees(trainer_on(shallow, devices, mesh).init()):
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        matrices = [
            leaf for path, leaf in leaves if sharding.names(path)[-1] in ("kernel", "embedding")
        ]
        assert matrices
        for leaf in matrices:
            assert {shard.data.size for shard in leaf.addressable_shards} == {leaf.size // parts}


def test_a_step_keeps_the_parts_where_they_are(trainer):
    state = trainer.init()
    before = [leaf.sharding for leaf in jax.tree.leaves(trees(state))]
    state, _ = run(trainer, state, range(1))
    assert [leaf.sharding for leaf in jax.tree.leaves(trees(state))] == before


def test_parts_of_a_batch_take_less_memory(devices, tiny_config):
    def scratch(**changes):
        trainer = trainer_on(tiny_config, devices, TrainMesh(), **changes)
        analysis = trainer.lower(64).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    assert scratch(gradient_accumulation_steps=4) < scratch() / 2


def test_a_deep_model_is_no_larger_a_program_than_a_shallow_one(devices, tiny_config):
    """One layer is compiled, in a loop over all: else compiling would take minutes."""

    def lines(layers):
        config = replace(tiny_config, layers=layers)
        return len(trainer_on(config, devices, TrainMesh()).lower(LENGTH).as_text().splitlines())

    assert lines(16) < 1.1 * lines(2)


def test_layers_are_computed_anew_where_that_is_asked_for(devices, shallow):
    """By what is computed: compiled for a CPU, no less memory shows."""

    def products(**changes):
        lowered = trainer_on(shallow, devices, TrainMesh(), **changes).lower(LENGTH)
        return lowered.as_text().count("stablehlo.dot_general")

    assert products(remat="layers") > products()


def test_padding_rows_change_nothing_and_every_target_counts_once(trainer):
    state, tokens = trainer.init(), rows(1)
    model = trainer.model(state)
    logits = np.asarray(model(jnp.asarray(tokens[:, :-1])), np.float64)[:3]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    by_hand = -np.take_along_axis(log_p, tokens[:3, 1:, None], axis=-1).sum()

    weights = (np.arange(BATCH) < 3).astype(np.float32)
    loss, count = trainer.evaluate(
        state, *(jax.device_put(x, trainer.batch) for x in (tokens, weights))
    )
    assert float(count) == 3 * LENGTH
    assert float(loss) == pytest.approx(by_hand, rel=1e-4)


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(trainer, tmp_path):
    _, whole = run(trainer, trainer.init(), range(8))
    url = str(tmp_path / "checkpoints")
    assert latest_step(url) == 0
    with Checkpoints(url, keep=2) as checkpoints:
        state, _ = run(trainer, trainer.init(), range(2))
        for step in (3, 4, 5):
            state, _ = run(trainer, state, range(step - 1, step))
            checkpoints.save(step, state)
        checkpoints.wait()
    assert latest_step(url) == 5
    assert sorted(int(folder.name) for folder in (tmp_path / "checkpoints").iterdir()) == [4, 5]
    with Checkpoints(url, keep=2) as checkpoints:
        state = checkpoints.restore(5, trainer.abstract)
    assert run(trainer, state, range(5, 8))[1] == whole[5:]


def test_the_learning_rate_rises_in_a_line_and_ends_at_a_tenth():
    rate = learning_rate(settings(steps=100, warmup_steps=10, learning_rate=0.02))
    assert [np.asarray(rate(step)).item() for step in (0, 5, 10, 55, 100)] == pytest.approx(
        [0, 0.01, 0.02, 0.011, 0.002]
    )


def test_matrices_decay_and_neither_norms_nor_embeddings_do():
    params = {
        "embed_tokens": {"embedding": jnp.ones((2, 2))},
        "norm": {"scale": jnp.ones(2)},
        "q_proj": {"kernel": jnp.ones((2, 2))},
    }
    chosen = settings(warmup_steps=0, weight_decay=0.5, learning_rate=0.1)
    optimizer = make_optimizer(chosen, learning_rate(chosen))
    still = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(still, optimizer.init(params), params)
    changes = {path[0].key: float(leaf.sum()) for path, leaf in jax.tree.leaves_with_path(updates)}
    assert changes == pytest.approx({"q_proj": -4 * 0.05, "norm": 0, "embed_tokens": 0})


def test_a_large_gradient_is_clipped_to_the_norm_that_was_set():
    chosen = settings(gradient_clip=0.5)
    optimizer = make_optimizer(chosen, learning_rate(chosen))
    params = {"q_proj": {"kernel": jnp.zeros((2, 2))}}
    huge = {"q_proj": {"kernel": jnp.full((2, 2), 100.0)}}
    _, state = optimizer.update(huge, optimizer.init(params), params)
    # Adam's first moment is a tenth of the gradient, whose norm is now that of four times 0.25.
    (moment,) = jax.tree.leaves(optax.tree_utils.tree_get(state, "mu"))
    assert np.asarray(moment) == pytest.approx(0.025 * np.ones((2, 2)))
