from dataclasses import replace

import jax.numpy as jnp
import pytest

from workloads.model import hf, sharding
from workloads.settings import InferSettings, MeshSettings


@pytest.fixture(scope="session")
def shallow_folder(tmp_path_factory, devices, tokenizer_json, tiny_config):
    """The tiny model with one layer: what many programs are compiled for."""
    mesh = sharding.make_mesh(MeshSettings(), devices[:1])
    model = sharding.init_sharded(replace(tiny_config, layers=1), mesh, seed=7)
    folder = tmp_path_factory.mktemp("model") / "shallow"
    hf.export(model, folder, tokenizer_json=tokenizer_json, dtype=jnp.float32)
    return folder


@pytest.fixture
def settings():
    """Settings of a small job, with changes."""

    def make(**changes):
        plain = {
            "prompts": ("prompts.jsonl",),
            "batch_size": 8,
            "max_sequence_length": 48,
            "max_tokens": 16,
            "dtype": "float32",
        }
        return InferSettings(**{**plain, **changes})

    return make
