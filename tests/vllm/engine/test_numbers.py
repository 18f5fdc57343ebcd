"""Our decoder against transformers' Qwen3, with the same weights, both ways."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from workloads.model import hf
from workloads.model.qwen3 import Qwen3

TOKENS = np.random.default_rng(0).integers(0, 280, (2, 24))
# Both compute in other orders: in float32 that moves the seventh figure. bfloat16 has three, and
# transformers rounds to it where we keep float32 (norms, softmax, logits).
TOLERANCE = {"float32": 2e-5, "bfloat16": 3e-2}


def ours(folder, mesh, dtype):
    model = hf.load(folder, mesh, dtype=jnp.dtype(dtype))
    return np.asarray(nnx.jit(Qwen3.__call__)(model, TOKENS))


def theirs(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    assert type(model) is Qwen3ForCausalLM
    with torch.no_grad():
        return model(torch.tensor(TOKENS)).logits.float().numpy()


def same(one, other, dtype):
    assert np.std(other) > 0.1  # numbers that differ at all
    np.testing.assert_allclose(one, other, atol=TOLERANCE[dtype] * np.abs(other).max())


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_what_we_export_computes_the_same_in_transformers(exported, mesh, dtype):
    same(ours(exported, mesh, dtype), theirs(exported, dtype), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("tied", [True, False])
def test_what_transformers_saves_computes_the_same_here(tmp_path, mesh, dtype, tied):
    """In several files, as a large model has."""
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=280,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=24,
        max_position_embeddings=128,
        rope_theta=50_000.0,
        rms_norm_eps=1e-5,
        initializer_range=0.1,
        tie_word_embeddings=tied,
    )
    made = Qwen3ForCausalLM(config).to(getattr(torch, dtype))
    made.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len([*tmp_path.glob("*.safetensors")]) > 2
    same(ours(tmp_path, mesh, dtype), theirs(tmp_path, dtype), dtype)
