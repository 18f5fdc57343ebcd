"""Runs in vLLM's environment, which `make test-vllm` makes: JAX, transformers and vLLM in one.

The variables must be set before anything imports jax, transformers or vllm, which read them once.
"""

import os

os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

import jax
import jax.numpy as jnp
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from workloads.model import hf, sharding
from workloads.model.config import ModelConfig
from workloads.settings import MeshSettings, ModelSettings

TEXT = ("The slice serves the model that it trained.", "A lost host takes its slice with it.")


@pytest.fixture(scope="session")
def tokenizer_json(tmp_path_factory):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def mesh():
    """Two devices that share each copy of a model."""
    assert jax.device_count() == 2, "jax was imported before this conftest.py"
    return sharding.make_mesh(MeshSettings(tensor=2))


@pytest.fixture(scope="session")
def exported(tmp_path_factory, mesh, tokenizer_json):
    """A random model of ours as a Hugging Face folder, weights in float32."""
    sizes = ModelSettings(
        hidden_size=64,
        intermediate_size=128,
        layers=2,
        attention_heads=4,
        key_value_heads=2,
        head_dim=32,
    )
    vocab_size = Tokenizer.from_file(str(tokenizer_json)).get_vocab_size()
    config = ModelConfig.of(
        sizes, vocab_size=vocab_size, max_position_embeddings=256, eos_token_ids=(0,)
    )
    folder = tmp_path_factory.mktemp("model") / "exported"
    model = sharding.init_sharded(config, mesh, seed=7)
    hf.export(model, folder, tokenizer_json=tokenizer_json, dtype=jnp.float32)
    return folder
