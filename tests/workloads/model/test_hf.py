"""The decoder's files: what other programs read, and what is refused."""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models

from workloads.model import hf, sharding
from workloads.model.config import ModelConfig, ModelError, read_config
from workloads.model.qwen3 import Qwen3
from workloads.settings import MeshSettings, TrainMesh

TOKENS = np.random.default_rng(0).integers(0, 320, (2, 9))


@pytest.fixture
def mesh(devices):
    return sharding.make_mesh(MeshSettings(tensor=2), devices[:2])


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy to damage."""
    return shutil.copytree(tiny_folder, tmp_path / "model")


def refused(folder, mesh):
    with pytest.raises(ModelError) as caught:
        hf.load(folder, mesh, dtype=jnp.float32)
    return str(caught.value).splitlines()


def logits(model):
    return np.asarray(nnx.jit(Qwen3.__call__)(model, TOKENS))


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_stacked_layers_are_those_of_the_files_and_go_back_into_them(
    devices, tiny_folder, tokenizer_json, tmp_path
):
    mesh = sharding.make_mesh(TrainMesh(fsdp=2, tensor=2), devices[:4])
    config = read_config(tiny_folder)
    graph, shapes = sharding.abstract(config, mesh, jnp.float32, stacked=True)
    stacked = nnx.merge(graph, nnx.State(hf.read(tiny_folder, nnx.to_pure_dict(shapes))))
    kernel = stacked.layers.mlp.up_proj.kernel[...]
    assert kernel.shape == (2, 64, 128)
    assert {shard.data.shape for shard in kernel.addressable_shards} == {(2, 32, 64)}
    alone = hf.load(tiny_folder, mesh, dtype=jnp.float32)
    np.testing.assert_allclose(logits(stacked), logits(alone), atol=1e-5)
    hf.export(stacked, tmp_path / "out", tokenizer_json=tokenizer_json, dtype=jnp.float32)
    before, after = (load_file(f / "model.safetensors") for f in (tiny_folder, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    with pytest.raises(TypeError, match="stacked layers have no cache"):
        stacked.prefill(TOKENS, np.array([9, 9]))


def test_a_model_that_was_cut_comes_back_on_another_mesh(
    devices, tiny_config, tokenizer_json, tmp_path
):
    wide = sharding.make_mesh(MeshSettings(data=2, tensor=4), devices)
    narrow = sharding.make_mesh(MeshSettings(data=1, tensor=2), devices[:2])
    model = sharding.init_sharded(tiny_config, wide, seed=3)
    hf.export(model, tmp_path / "out", tokenizer_json=tokenizer_json, dtype=jnp.float32)
    back = hf.load(tmp_path / "out", narrow, dtype=jnp.float32)
    assert back.config == tiny_config
    np.testing.assert_allclose(logits(back), logits(model), atol=1e-5)
    first, *_ = back.separate_layers()
    parts = first.self_attn.q_proj.kernel[...].addressable_shards
    assert {part.data.shape for part in parts} == {(64, 64)}


def test_the_exported_config_says_what_transformers_reads(tiny_folder):
    config = json.loads((tiny_folder / "config.json").read_text())
    expected = {  # written by hand from Qwen3Config's documentation and the tiny model's sizes
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "eos_token_id": [0, 2],
        "pad_token_id": 0,
    }
    assert expected.items() <= config.items()


def test_weights_are_stored_in_the_type_asked_for(devices, tiny_config, tokenizer_json, tmp_path):
    mesh = sharding.make_mesh(MeshSettings(), devices[:1])
    model = sharding.init_sharded(tiny_config, mesh, seed=3)
    hf.export(model, tmp_path / "half", tokenizer_json=tokenizer_json)
    tensors = load_file(tmp_path / "half" / "model.safetensors")
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"bfloat16"}
    assert json.loads((tmp_path / "half" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    loaded = hf.load(tmp_path / "half", mesh, dtype=jnp.bfloat16)
    assert loaded.embed_tokens.embedding.dtype == jnp.bfloat16


def test_other_users_may_read_every_file(tiny_folder):
    plain = tiny_folder / "config.json"
    modes = {path.stat().st_mode for path in tiny_folder.iterdir()}
    assert modes == {plain.stat().st_mode}


def test_an_export_that_fails_leaves_the_old_one_and_no_debris(
    folder, tiny_config, mesh, tokenizer_json, monkeypatch
):
    def no_space(*_, **__):
        raise OSError("No space left on device")

    before = (folder / "model.safetensors").read_bytes()
    monkeypatch.setattr(hf, "save_file", no_space)
    model = sharding.init_sharded(tiny_config, mesh, seed=9)
    with pytest.raises(OSError, match="No space left"):
        hf.export(model, folder, tokenizer_json=tokenizer_json)
    assert (folder / "model.safetensors").read_bytes() == before
    assert list(folder.parent.iterdir()) == [folder]


def test_an_export_replaces_the_old_one_as_a_whole(folder, tiny_config, mesh, tokenizer_json):
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"left over")
    hf.export(
        sharding.init_sharded(tiny_config, mesh, seed=9), folder, tokenizer_json=tokenizer_json
    )
    assert not (folder / "model-00001-of-00002.safetensors").exists()
    assert list(folder.parent.iterdir()) == [folder]


def test_no_chat_template_is_written_for_a_tokenizer_without_its_tokens(
    devices, tiny_config, tiny_folder, tmp_path
):
    mesh = sharding.make_mesh(MeshSettings(), devices[:1])
    plain = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "c": 2}, merges=[]))
    plain.save(str(tmp_path / "tokenizer.json"))
    model = sharding.init_sharded(tiny_config, mesh, seed=0)
    hf.export(model, tmp_path / "m", tokenizer_json=tmp_path / "tokenizer.json")
    bare = json.loads((tmp_path / "m" / "tokenizer_config.json").read_text())
    full = json.loads((tiny_folder / "tokenizer_config.json").read_text())
    assert "chat_template" not in bare
    assert "<|im_start|>" in full["chat_template"]


def test_all_faults_of_a_checkpoint_are_told_at_once(folder, mesh):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = np.zeros(32, np.float32)
    tensors["model.layers.1.mlp.up_proj.weight"] = np.zeros((64, 128), np.float32)
    tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((128, 64), np.float32)
    tensors["model.layers.0.self_attn.q_norm.weight"] = np.zeros(16, np.int8)
    del tensors["model.layers.0.self_attn.k_norm.weight"]
    save_file(tensors, folder / "model.safetensors")
    told = refused(folder, mesh)
    start = f"{folder}: checkpoint of another shape: "
    assert all(line.startswith(start) for line in told)
    assert {line.removeprefix(start) for line in told} == {
        "model.norm.weight is (32,), but config.json makes it (64,)",
        "model.layers.1.mlp.up_proj.weight is (64, 128), but config.json makes it (128, 64)",
        "model.layers.2.mlp.up_proj.weight is unexpected",
        "model.layers.0.self_attn.q_norm.weight is stored as I8, not one of BF16, F16, F32, F64",
        "model.layers.0.self_attn.k_norm.weight is missing",
    }


def test_a_checkpoint_of_many_files_is_the_same_model(folder, tiny_folder, mesh):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {"one.safetensors": names[:7], "two.safetensors": names[7:]}
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    many = hf.load(folder, mesh, dtype=jnp.float32)
    one = hf.load(tiny_folder, mesh, dtype=jnp.float32)
    assert np.array_equal(logits(many), logits(one))

    (folder / "two.safetensors").unlink()
    assert refused(folder, mesh) == [f"{folder}: two.safetensors is missing"]


def test_a_damaged_file_is_named(folder, mesh):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    (told,) = refused(folder, mesh)
    assert told.startswith(f"{folder}: model.safetensors is damaged")


def test_a_tied_head_that_was_stored_again_does_no_harm(folder, mesh):
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    save_file(tensors, folder / "model.safetensors")
    hf.load(folder, mesh, dtype=jnp.float32)


def test_generation_config_may_name_more_ends_than_config(folder):
    edit(folder / "config.json", eos_token_id=2)
    edit(folder / "generation_config.json", eos_token_id=[2, 0, 1])
    assert read_config(folder).eos_token_ids == (2, 0, 1)
    (folder / "generation_config.json").unlink()
    assert read_config(folder).eos_token_ids == (2,)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'; only 'qwen3' is supported"),
        ({"model_type": None}, "model_type is None; only 'qwen3' is supported"),
        (
            {"architectures": ["Qwen3MoeForCausalLM"]},
            "architectures is ['Qwen3MoeForCausalLM']; only Qwen3ForCausalLM is supported",
        ),
        ({"attention_bias": True}, "attention_bias is True; only False is supported"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is supported"),
        ({"use_sliding_window": True}, "use_sliding_window is True; only False is supported"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "rope_scaling asks for 'yarn'; only unscaled rotary positions are supported",
        ),
        (
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e6}},
            "rope_parameters asks for 'linear'; only unscaled rotary positions are supported",
        ),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            "layer_types has sliding_attention; only full_attention is supported",
        ),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, not a positive whole number"),
        ({"hidden_size": "64"}, "hidden_size is '64', not a positive whole number"),
        ({"rms_norm_eps": "1e-6"}, "rms_norm_eps is '1e-6', not a positive number"),
        ({"eos_token_id": ["</s>"]}, "eos_token_id is ['</s>'], not a token's number"),
        ({"vocab_size": None}, "vocab_size is None, not a positive whole number"),
    ],
)
def test_a_config_that_would_be_computed_wrongly_is_refused(folder, changes, told):
    path = folder / "config.json"
    edit(path, **changes)
    with pytest.raises(ModelError) as caught:
        read_config(folder)
    assert str(caught.value) == f"{path}: {told}"


def test_all_faults_of_a_config_are_told_at_once(folder):
    edit(folder / "config.json", model_type="gemma", attention_bias=True, head_dim=None)
    with pytest.raises(ModelError) as caught:
        read_config(folder)
    assert len(caught.value.faults) == 3


def test_a_folder_without_a_model_says_what_is_missing(tmp_path, mesh):
    assert refused(tmp_path, mesh) == [
        f"{tmp_path}/config.json: no such file; a Hugging Face folder has one"
    ]
    (tmp_path / "config.json").write_text("{")
    (told,) = refused(tmp_path, mesh)
    assert told.startswith(f"{tmp_path}/config.json: cannot be read as JSON")


def test_rotary_base_is_read_from_old_and_new_configs(folder):
    path = folder / "config.json"
    edit(path, rope_theta=5000.0)
    assert read_config(folder).rope_theta == 5000.0
    edit(path, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 7000.0})
    assert read_config(folder).rope_theta == 7000.0


@given(
    st.builds(
        ModelConfig,
        vocab_size=st.integers(100, 200_000),
        hidden_size=st.integers(1, 9000),
        intermediate_size=st.integers(1, 9000),
        layers=st.integers(1, 99),
        attention_heads=st.sampled_from([8, 16]),
        key_value_heads=st.sampled_from([1, 4, 8]),
        head_dim=st.sampled_from([2, 64, 128]),
        rope_theta=st.floats(1, 1e7),
        rms_norm_epsilon=st.floats(1e-9, 1e-3),
        max_position_embeddings=st.integers(1, 100_000),
        tie_word_embeddings=st.booleans(),
        bos_token_id=st.none() | st.integers(0, 99),
        eos_token_ids=st.lists(st.integers(0, 99), max_size=3).map(tuple),
        pad_token_id=st.none() | st.integers(0, 99),
    )
)
def test_every_config_survives_the_way_through_json(config):
    raw = json.loads(json.dumps(config.to_hf(dtype="bfloat16")))
    assert ModelConfig.from_hf(raw) == config
