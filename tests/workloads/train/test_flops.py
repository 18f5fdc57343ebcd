"""The model's own operations, against those of the program that JAX makes and XLA compiles."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from workloads.model import sharding
from workloads.preflight.flops import matmul_flops
from workloads.settings import TrainMesh, TrainSettings
from workloads.train.flops import model_flops
from workloads.train.step import State, make_trainer

BATCH = 2
SETTINGS = TrainSettings(
    mesh=TrainMesh(), steps=9, warmup_steps=1, global_batch=BATCH, dtype="float32"
)


def trainer_of(config, devices, settings=SETTINGS):
    return make_trainer(settings, config, sharding.make_mesh(settings.mesh, devices[:1]))


def products(trainer, length):
    """Of the step's program before any compiler has seen it."""

    def step(params, optimizer, tokens):
        state, loss = trainer.train(State(params, optimizer), tokens)
        return state.params, state.optimizer, loss

    state, tokens = trainer.abstract, jax.ShapeDtypeStruct((BATCH, length + 1), jnp.int32)
    return matmul_flops(jax.make_jaxpr(step)(state.params, state.optimizer, tokens))


@pytest.mark.parametrize(("length", "scores"), [(32, 1_048_576), (96, 9_437_184)])
def test_a_step_multiplies_what_the_model_asks_for_and_its_scores_once_more(
    tiny_config, devices, length, scores
):
    """The backward pass computes them anew: a multiplication and an addition for each pair of
    tokens, of 2 sequences, in 2 layers, 8 heads and 16 dimensions a head."""
    made = products(trainer_of(tiny_config, devices), length)
    assert made - model_flops(tiny_config, BATCH * length, length) == scores


def test_what_is_computed_anew_is_not_asked_for_by_the_model(tiny_config, devices):
    again = SETTINGS.model_copy(update={"remat": "layers"})
    assert products(trainer_of(tiny_config, devices, again), 32) > model_flops(
        tiny_config, BATCH * 32, 32
    )


def test_xla_counts_the_same_and_a_little_besides(tiny_config, devices):
    """Its count has norms, softmax and the optimizer, too: little, where matrices are large.

    Of one layer: XLA counts what a loop holds once, however often it runs."""
    wide = replace(tiny_config, layers=1, hidden_size=256, intermediate_size=768, vocab_size=2048)
    compiled = trainer_of(wide, devices).lower(128).compile()
    cost = compiled.cost_analysis()
    assert cost is not None
    ratio = cost["flops"] / model_flops(wide, BATCH * 128, 128)
    assert 1 < ratio < 1.1


def test_a_large_model_takes_six_operations_a_weight_and_token(tiny_config):
    """The rule of thumb of the field, of 4.0 billion weights as published for Qwen3-4B."""
    qwen = replace(
        tiny_config,
        hidden_size=2560,
        intermediate_size=9728,
        layers=36,
        attention_heads=32,
        key_value_heads=8,
        head_dim=128,
        vocab_size=151_936,
    )
    assert model_flops(qwen, 1, 1) == pytest.approx(6 * 4.02e9, rel=0.01)
