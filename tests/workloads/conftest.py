"""Eight CPU devices in place of a host's chips, and a tiny model to run on them.

The variables must be set before anything imports jax or ray, which read them once.
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ |= {
    # `ray.init` of one test would turn tokens on for the clusters that later ones start.
    "RAY_AUTH_MODE": "disabled",
    # As on the hosts of a local stack (infra/local/ray_node.py), and for its reasons.
    "RAY_enable_worker_prestart": "0",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = (
    "The slice serves the model that it trained, and the model answers the questions of a user.",
    "A host that is lost takes its chips with it; the run goes on from the last checkpoint.",
    "def main(argv): parse, decode, hand over. Ünïcödé, naïve, 你好 and 🙂 are text as well.",
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="session")
def devices():
    import jax

    assert jax.device_count() == 8, "jax was imported before tests/workloads/conftest.py"
    return jax.devices()


@pytest.fixture(scope="session")
def tokenizer_json(tmp_path_factory):
    """A byte-level BPE tokenizer of 320 tokens with Qwen's special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    assert tokenizer.get_vocab_size() == 320
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def tiny_config():
    from workloads.model.config import ModelConfig
    from workloads.settings import ModelSettings

    sizes = ModelSettings(
        hidden_size=64,
        intermediate_size=128,
        layers=2,
        attention_heads=8,
        key_value_heads=4,
        head_dim=16,
    )
    return ModelConfig.of(
        sizes, vocab_size=320, max_position_embeddings=256, eos_token_ids=(0, 2), pad_token_id=0
    )


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory, devices, tokenizer_json, tiny_config):
    """A random tiny model as a Hugging Face folder, weights in float32."""
    import jax.numpy as jnp

    from workloads.model import hf, sharding
    from workloads.settings import MeshSettings

    mesh = sharding.make_mesh(MeshSettings(), devices[:1])
    folder = tmp_path_factory.mktemp("model") / "tiny"
    model = sharding.init_sharded(tiny_config, mesh, seed=7)
    hf.export(model, folder, tokenizer_json=tokenizer_json, dtype=jnp.float32)
    return folder
