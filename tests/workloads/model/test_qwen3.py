"""The decoder's numbers, against transformers' and against the published formulae in float64."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from workloads.model import hf, sharding
from workloads.model.qwen3 import Qwen3
from workloads.settings import MeshSettings

GOLDEN = json.loads((Path(__file__).parent / "golden" / "transformers_qwen3.json").read_text())


def hf_shapes(c):
    """Every tensor of a Qwen3 checkpoint, as Hugging Face names and shapes it."""
    hidden, inner, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    shapes = {
        "model.embed_tokens.weight": (c["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        shapes |= {
            f"model.layers.{i}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (q, hidden),
                "self_attn.k_proj": (kv, hidden),
                "self_attn.v_proj": (kv, hidden),
                "self_attn.o_proj": (hidden, q),
                "self_attn.q_norm": (head,),
                "self_attn.k_norm": (head,),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }.items()
        }
    return shapes


def by_formula(config):
    """The golden's weights, by the rule its `origin` tells."""
    weights = {}
    for i, (name, shape) in enumerate(sorted(hf_shapes(config).items())):
        wave = np.sin(0.7 * np.arange(np.prod(shape)) + i).reshape(shape)
        weights[name] = 1 + 0.2 * wave if name.endswith("norm.weight") else wave / 4
    return weights


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotary(x_tnh, theta):
    length, _, head = x_tnh.shape
    turned = np.empty_like(x_tnh)
    for position in range(length):
        for i in range(head // 2):
            angle = position / theta ** (2 * i / head)
            a, b = x_tnh[position, :, i], x_tnh[position, :, i + head // 2]
            turned[position, :, i] = a * np.cos(angle) - b * np.sin(angle)
            turned[position, :, i + head // 2] = b * np.cos(angle) + a * np.sin(angle)
    return turned


def reference(config, weights, tokens):
    """Qwen3 for one sequence, head by head, in float64."""
    c, w = config, weights
    head, group = c["head_dim"], c["num_attention_heads"] // c["num_key_value_heads"]
    length = len(tokens)
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        p = {k.split(f"layers.{i}.")[1]: v for k, v in w.items() if f"layers.{i}." in k}
        y = rms_norm(x, p["input_layernorm.weight"], c["rms_norm_eps"])
        q, k, v = ((y @ p[f"self_attn.{n}_proj.weight"].T).reshape(length, -1, head) for n in "qkv")
        q = rotary(rms_norm(q, p["self_attn.q_norm.weight"], c["rms_norm_eps"]), c["rope_theta"])
        k = rotary(rms_norm(k, p["self_attn.k_norm.weight"], c["rms_norm_eps"]), c["rope_theta"])
        heads = []
        for n in range(c["num_attention_heads"]):
            score = q[:, n] @ k[:, n // group].T / np.sqrt(head)
            score[np.triu_indices(length, 1)] = -np.inf
            share = np.exp(score - score.max(axis=1, keepdims=True))
            heads.append(share / share.sum(axis=1, keepdims=True) @ v[:, n // group])
        x = x + np.concatenate(heads, axis=1) @ p["self_attn.o_proj.weight"].T
        y = rms_norm(x, p["post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate = y @ p["mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ p["mlp.up_proj.weight"].T)) @ (
            p["mlp.down_proj.weight"].T
        )
    x = rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"])
    return x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def saved(folder, config, weights):
    (folder / "config.json").write_text(json.dumps(config))
    save_file({k: v.astype(np.float32) for k, v in weights.items()}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=["tied", "untied"])
def test_logits_equal_those_of_transformers(case, devices, tmp_path):
    mesh = sharding.make_mesh(MeshSettings(data=2, tensor=2), devices[:4])
    folder = saved(tmp_path, case["config"], by_formula(case["config"]))
    model = hf.load(folder, mesh, dtype=jnp.float32)
    logits = nnx.jit(Qwen3.__call__)(model, jnp.array(case["tokens"]))
    np.testing.assert_allclose(logits, np.array(case["logits"]), atol=2e-5)


@settings(max_examples=5, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (4, 2), (6, 2), (4, 4)]),
    choices=st.fixed_dictionaries(
        {
            "head_dim": st.sampled_from([2, 6, 16]),
            "num_hidden_layers": st.integers(1, 2),
            "rope_theta": st.sampled_from([100.0, 1e6]),
            "tie_word_embeddings": st.booleans(),
        }
    ),
    tokens=st.lists(st.integers(0, 19), min_size=1, max_size=12),
)
def test_logits_equal_the_published_formulae(heads, choices, tokens, tmp_path_factory):
    config = choices | {
        "model_type": "qwen3",
        "vocab_size": 20,
        "hidden_size": 12,
        "intermediate_size": 20,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "rms_norm_eps": 1e-5,
    }
    weights = by_formula(config)
    mesh = sharding.make_mesh(MeshSettings(), jax.devices()[:1])
    folder = saved(tmp_path_factory.mktemp("formulae"), config, weights)
    model = hf.load(folder, mesh, dtype=jnp.float32)
    logits = nnx.jit(Qwen3.__call__)(model, jnp.array([tokens]))[0]
    np.testing.assert_allclose(logits, reference(config, weights, tokens), atol=3e-5)


@pytest.fixture(scope="module")
def model(tiny_config):
    return Qwen3(tiny_config, rngs=nnx.Rngs(1))


whole = nnx.jit(Qwen3.__call__)


def random_tokens(*shape):
    return np.random.default_rng(3).integers(0, 320, shape)


def test_packed_documents_do_not_see_each_other(model):
    first, second = random_tokens(1, 5), random_tokens(1, 11)
    packed = np.concatenate([first, second], axis=1)
    segments = np.array([[0] * 5 + [1] * 11])
    logits = whole(model, packed, segments)
    np.testing.assert_allclose(logits[:, :5], whole(model, first), atol=1e-5)
    np.testing.assert_allclose(logits[:, 5:], whole(model, second), atol=1e-5)
    assert np.abs(logits[:, 5:] - whole(model, packed)[:, 5:]).max() > 1e-3


def test_prompt_then_one_token_at_a_time_equals_the_whole_sequence(model):
    """Rows of different lengths, prompts padded to 8 tokens, each row at its own position."""
    tokens, lengths = random_tokens(3, 12), np.array([1, 4, 8])
    expected = whole(model, tokens)
    cache = model.empty_cache(3, 12)
    # Rubbish from the rows' former requests must not be seen.
    cache = jax.tree.map(lambda x: x + 100.0, cache)
    prefill, decode = nnx.jit(Qwen3.prefill), nnx.jit(Qwen3.decode)
    for row, length in enumerate(lengths):
        prompt = np.where(np.arange(8) < length, tokens[row, :8], 5)[None]
        logits, prefix = prefill(model, prompt, jnp.array([length]))
        np.testing.assert_allclose(logits[0], expected[row, length - 1], atol=1e-5)
        cache = cache.insert(row, prefix)
    for step in range(4):
        at = lengths + step
        logits, cache = decode(model, tokens[np.arange(3), at], at, cache)
        np.testing.assert_allclose(logits, expected[np.arange(3), at], atol=1e-5)


def test_softmax_and_logits_are_float32_when_activations_are_not(tiny_config):
    half = Qwen3(tiny_config, rngs=nnx.Rngs(1), dtype=jnp.bfloat16)
    logits = whole(half, random_tokens(1, 9))
    assert logits.dtype == jnp.float32
    assert len(np.unique(np.asarray(logits[0, 0]).astype(jnp.bfloat16))) < len(
        np.unique(logits[0, 0])
    ), "logits were rounded to bfloat16"


def test_attention_depends_on_distance_alone_even_far_from_the_start(model):
    """In bfloat16, positions past 256 would blur into each other."""
    x = model.embed_tokens(random_tokens(1, 6))
    mask = jnp.tril(jnp.ones((1, 6, 6), dtype=bool))
    layer = model.layers[0]
    near, far = (
        layer.finish(x, *layer.project(x, jnp.arange(6)[None] + start), mask)
        for start in (0, 20_001)
    )
    np.testing.assert_allclose(near, far, atol=2e-3)
