"""How the decoder is cut over a mesh."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from workloads.model import sharding
from workloads.model.config import ModelConfig, ModelError
from workloads.model.qwen3 import Qwen3
from workloads.settings import MeshSettings, TrainMesh

# One device's part of each parameter of the tiny model at fsdp 2 x tensor 4, by hand: hidden 64,
# wide 128, 8 heads and 4 key-value heads of 16, vocabulary 320. Matrices are (in, out).
PARTS = {
    "embed_tokens": (80, 32),
    "q_proj": (32, 32),
    "k_proj": (32, 16),
    "v_proj": (32, 16),
    "o_proj": (32, 32),
    "gate_proj": (32, 32),
    "up_proj": (32, 32),
    "down_proj": (32, 32),
    "input_layernorm": (64,),
    "post_attention_layernorm": (64,),
    "q_norm": (16,),
    "k_norm": (16,),
    "norm": (64,),
}


def test_each_device_holds_its_part_and_no_more(devices, tiny_config):
    mesh = sharding.make_mesh(TrainMesh(fsdp=2, tensor=4), devices)
    model = sharding.init_sharded(tiny_config, mesh, seed=0)
    parts = {
        path[-2]: {shard.data.shape for shard in leaf[...].addressable_shards}
        for path, leaf in nnx.to_flat_state(nnx.state(model))
    }
    assert parts == {name: {shape} for name, shape in PARTS.items()}


def test_the_same_seed_gives_the_same_model_and_logits_on_every_mesh(devices, tiny_config):
    tokens = np.random.default_rng(0).integers(0, 320, (8, 12))
    logits = []
    for axes in (TrainMesh(), TrainMesh(data=8), TrainMesh(data=2, tensor=4), TrainMesh(fsdp=8)):
        mesh = sharding.make_mesh(axes, devices[: axes.devices])
        model = sharding.init_sharded(tiny_config, mesh, seed=5)
        logits.append(np.asarray(nnx.jit(Qwen3.__call__)(model, tokens)))
    for other in logits[1:]:
        np.testing.assert_allclose(other, logits[0], atol=1e-5)


def test_batch_and_vocabulary_of_the_logits_stay_cut(devices, tiny_config):
    mesh = sharding.make_mesh(MeshSettings(data=2, tensor=4), devices)
    model = sharding.init_sharded(tiny_config, mesh, seed=0, dtype=jnp.bfloat16)
    logits = nnx.jit(Qwen3.__call__)(model, np.zeros((4, 6), np.int32))
    assert {shard.data.shape for shard in logits.addressable_shards} == {(2, 6, 80)}


def test_every_size_that_does_not_divide_is_named_with_both_numbers(devices):
    config = ModelConfig(
        vocab_size=321,
        hidden_size=63,
        intermediate_size=130,
        layers=1,
        attention_heads=6,
        key_value_heads=2,
        head_dim=16,
        rope_theta=1e6,
        rms_norm_epsilon=1e-6,
        max_position_embeddings=64,
    )
    mesh = sharding.make_mesh(TrainMesh(fsdp=2, tensor=4), devices)
    with pytest.raises(ModelError) as caught:
        sharding.init_sharded(config, mesh, seed=0)
    assert str(caught.value).splitlines() == [
        "model: hidden_size 63 is not a multiple of mesh axis fsdp 2",
        "model: attention_heads 6 is not a multiple of mesh axis tensor 4",
        "model: key_value_heads 2 is not a multiple of mesh axis tensor 4",
        "model: intermediate_size 130 is not a multiple of mesh axis tensor 4",
        "model: vocab_size 321 is not a multiple of mesh axis tensor 4",
    ]


def test_a_mesh_of_another_size_than_the_devices_is_refused_with_both_numbers(devices):
    with pytest.raises(ValueError, match=r"data 4 x tensor 4 needs 16 .* sees 8"):
        sharding.make_mesh(MeshSettings(data=4, tensor=4), devices)


class FakeDevice(SimpleNamespace):
    """What jax asks of a device when it makes a mesh."""

    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType]  # by identity, as jax's


def fake_hosts(hosts, chips, slices=1):
    return [
        FakeDevice(
            id=i,
            process_index=i // chips,
            slice_index=i // (hosts * chips),
            platform="cpu",
            device_kind="cpu",
            client=None,
        )
        for i in range(hosts * chips * slices)
    ]


def test_the_tensor_axis_stays_within_a_host(devices):
    assert devices
    mesh = sharding.make_mesh(MeshSettings(data=4, tensor=4), fake_hosts(hosts=4, chips=4))
    hosts = [{device.process_index for device in copy.flat} for copy in mesh.devices]
    assert hosts == [{0}, {1}, {2}, {3}]


def test_only_the_data_axis_crosses_slices(devices):
    assert devices
    two = fake_hosts(hosts=2, chips=4, slices=2)
    mesh = sharding.make_mesh(MeshSettings(data=4, tensor=4), two)
    slices = [{device.slice_index for device in copy.flat} for copy in mesh.devices]
    assert slices == [{0}, {0}, {1}, {1}]
    with pytest.raises(ValueError, match="data 1 is not a multiple of 2 slices"):
        sharding.make_mesh(MeshSettings(data=1, tensor=16), two)


def test_devices_that_know_no_slice_are_taken_in_the_order_of_their_processes(devices):
    """So it is on simulated slices: Ray Train numbers hosts slice by slice."""
    assert devices
    hosts = fake_hosts(hosts=2, chips=4, slices=2)
    for device in hosts:
        del device.slice_index
    mesh = sharding.make_mesh(TrainMesh(data=4, fsdp=2, tensor=2), hosts)
    copies = [{device.process_index for device in copy.flat} for copy in mesh.devices]
    assert copies == [{0}, {1}, {2}, {3}]


def test_an_optimizers_copy_of_a_parameter_is_cut_like_it():
    path = (0, "mu", "layers", 1, "self_attn", "q_proj", "kernel", "value")
    assert sharding.spec(path) == sharding.spec(("layers", 1, "self_attn", "q_proj", "kernel"))


def test_stacked_layers_are_cut_as_each_would_be_by_itself():
    assert sharding.spec(("layers", "self_attn", "q_proj", "kernel")) == P(None, "fsdp", "tensor")
    moment = (0, "nu", "layers", "mlp", "down_proj", "kernel", "value")
    assert sharding.spec(moment) == P(None, "tensor", "fsdp")
    assert sharding.spec(("layers", "input_layernorm", "scale")) == P(None)


def test_a_parameter_without_a_declared_partition_is_an_error():
    with pytest.raises(KeyError, match=r"layers\.0\.self_attn\.gate_bias\.kernel"):
        sharding.spec(("layers", 0, "self_attn", "gate_bias", "kernel"))
