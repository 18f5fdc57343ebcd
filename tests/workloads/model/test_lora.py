"""Adapters beside a decoder's projections: what they change, where they lie, and their files."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors import safe_open
from safetensors.numpy import load_file

from workloads.model import hf, lora, peft, sharding
from workloads.model.qwen3 import Qwen3
from workloads.settings import LoraSettings, MeshSettings, TrainMesh

TOKENS = np.random.default_rng(0).integers(0, 320, (2, 9))
SETTINGS = LoraSettings(rank=4, alpha=12, targets=("q_proj", "o_proj", "down_proj"))
# (in, out) of the tiny model's targets, by hand: 64 hidden, 8 heads of 16, 128 wide.
SIZES = {"self_attn.q_proj": (64, 128), "self_attn.o_proj": (128, 64), "mlp.down_proj": (128, 64)}


def logits(model):
    return np.asarray(nnx.jit(Qwen3.__call__)(model, TOKENS))


@pytest.fixture
def plain(tiny_folder, devices):
    mesh = sharding.make_mesh(MeshSettings(tensor=2), devices[:2])
    return hf.load(tiny_folder, mesh, dtype=jnp.float32)


@pytest.fixture
def adapted(plain):
    """The plain model's matrices, with adapters that change what it says."""
    graph, state = nnx.split(plain)
    model = nnx.merge(graph, state)
    lora.adapt(model, SETTINGS, nnx.Rngs(1))
    weights, key = nnx.to_pure_dict(nnx.state(plain)), jax.random.key(2)
    nnx.update(model, nnx.State(weights))
    for number, (_, leaf) in enumerate(nnx.to_flat_state(nnx.state(model, nnx.LoRAParam))):
        leaf[...] = 0.1 * jax.random.normal(jax.random.fold_in(key, number), leaf.shape)
    return model


def test_new_adapters_change_nothing(plain, adapted):
    for _, leaf in nnx.to_flat_state(nnx.state(adapted, nnx.LoRAParam)):
        if leaf.shape[0] == SETTINGS.rank:
            leaf[...] = jnp.zeros(leaf.shape)
    assert np.array_equal(logits(adapted), logits(plain))


def test_the_first_matrix_starts_as_in_peft_and_the_second_at_zero(plain):
    lora.adapt(plain, SETTINGS, nnx.Rngs(0))
    block = plain.layers[0].self_attn
    a, b = np.asarray(block.q_proj.lora_a[...]), np.asarray(block.q_proj.lora_b[...])
    assert not b.any()
    # torch's kaiming_uniform_ with a = sqrt(5), over 64 inputs: uniform within 1 / 8.
    assert 0.11 < np.abs(a).max() <= 0.125
    assert np.std(a) == pytest.approx(0.125 / np.sqrt(3), rel=0.1)


def test_a_merged_model_says_what_the_adapted_one_did(plain, adapted):
    before = logits(adapted)
    assert np.abs(before - logits(plain)).max() > 0.1
    lora.merge(adapted)
    np.testing.assert_allclose(logits(adapted), before, atol=2e-5)
    assert not nnx.state(adapted, nnx.LoRAParam)


def test_the_files_hold_what_numpy_needs_to_merge_them(adapted, tiny_folder, tmp_path):
    """As PEFT does: W + alpha / rank * B A, with torch's shapes."""
    peft.export(adapted, tmp_path / "adapter", lora=SETTINGS)
    pairs = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    by_hand = load_file(tiny_folder / "model.safetensors")
    for layer in range(2):
        for target, (width_in, width_out) in SIZES.items():
            name = f"model.layers.{layer}.{target}"
            a = pairs.pop(f"base_model.model.{name}.lora_A.weight")
            b = pairs.pop(f"base_model.model.{name}.lora_B.weight")
            assert (a.shape, b.shape) == ((4, width_in), (width_out, 4))
            by_hand[f"{name}.weight"] += config["lora_alpha"] / config["r"] * b @ a
    assert not pairs
    tokenizer = tiny_folder / "tokenizer.json"
    lora.merge(adapted)
    hf.export(adapted, tmp_path / "whole", tokenizer_json=tokenizer, dtype=jnp.float32)
    written = load_file(tmp_path / "whole" / "model.safetensors")
    assert written.keys() == by_hand.keys()
    for name, tensor in by_hand.items():
        np.testing.assert_allclose(written[name], tensor, atol=1e-6, err_msg=name)


def test_an_adapter_is_cut_as_its_projection_is(devices, tiny_config):
    mesh = sharding.make_mesh(TrainMesh(data=2, fsdp=2, tensor=2), devices)
    _, shapes = sharding.abstract(tiny_config, mesh, jnp.float32, lora=SETTINGS, stacked=True)
    adapters = nnx.to_pure_dict(nnx.split_state(shapes, nnx.LoRAParam, ...)[0])
    made = sharding.init_adapters(tiny_config, adapters, SETTINGS, seed=0)["layers"]

    def parts(*path):
        leaf = made
        for name in path:
            leaf = leaf[name]
        return {shard.data.shape for shard in leaf.addressable_shards}

    # Into the heads: inputs by fsdp, outputs by tensor. Out of them, the other way round.
    assert parts("self_attn", "q_proj", "lora_a") == {(2, 32, 4)}
    assert parts("self_attn", "q_proj", "lora_b") == {(2, 4, 64)}
    assert parts("self_attn", "o_proj", "lora_a") == {(2, 64, 4)}
    assert parts("self_attn", "o_proj", "lora_b") == {(2, 4, 32)}
    assert set(made["mlp"]) == {"down_proj"}
    first, second = np.asarray(made["self_attn"]["q_proj"]["lora_a"])
    assert not np.array_equal(first, second)  # each layer draws its own


def test_a_host_reads_the_parts_of_its_own_devices(tiny_folder, tiny_config, devices, monkeypatch):
    """Never a whole matrix where fsdp and tensor cut it in four."""
    read = []

    class Tensor:
        def __init__(self, tensor):
            self.get_shape, self.get_dtype = tensor.get_shape, tensor.get_dtype
            self.tensor = tensor

        def __getitem__(self, index):
            read.append(self.tensor[index].shape)
            return self.tensor[index]

    @contextmanager
    def opened(path, framework):
        with safe_open(path, framework=framework) as file:
            yield SimpleNamespace(
                keys=file.keys, get_slice=lambda name: Tensor(file.get_slice(name))
            )

    monkeypatch.setattr(hf, "safe_open", opened)
    mesh = sharding.make_mesh(TrainMesh(fsdp=2, tensor=2), devices[:4])
    _, shapes = sharding.abstract(tiny_config, mesh, jnp.float32)
    hf.read(tiny_folder, nnx.to_pure_dict(shapes))
    matrices = [shape for shape in read if len(shape) == 2]
    assert max(np.prod(shape) for shape in matrices) == 320 * 64 / 4
    assert sum(np.prod(shape) for shape in matrices) == 320 * 64 + 2 * (
        64 * 128 + 2 * 64 * 64 + 128 * 64 + 3 * 64 * 128
    )
