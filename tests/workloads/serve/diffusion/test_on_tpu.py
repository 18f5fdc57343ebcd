"""The program as libtpu's compiler takes it, for a slice that is not here."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import topologies

from infra.preflight.compiler import ENVIRONMENT
from workloads.model.sharding import make_mesh
from workloads.serve.diffusion import weights
from workloads.serve.diffusion.config import DiffusionConfig
from workloads.serve.diffusion.pictures import make_program
from workloads.settings import MeshSettings, SamplerSettings

TALK = re.compile(r"all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter")
ROWS = 8


@pytest.fixture(scope="module")
def compiled():
    """For a v6e 2x2, in bfloat16: 64 x 64 pixels by a model of width 256."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        slice_ = topologies.get_topology_desc("v6e:2x2", "tpu", chips_per_host_bounds=(2, 2, 1))
    mesh = make_mesh(MeshSettings(data=4), slice_.devices)
    config = DiffusionConfig(
        trained=True, vocab_size=256, image_size=64, patch_size=8, hidden_size=256
    )
    graph, state = weights.abstract(config, jnp.bfloat16)
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), state)
    row = jax.ShapeDtypeStruct((ROWS,), jnp.int32)
    tokens = jax.ShapeDtypeStruct((ROWS, config.text_length), jnp.int32)
    seeds = jax.ShapeDtypeStruct((ROWS,), jnp.uint32)
    program = make_program(graph, config, mesh, SamplerSettings())
    return program.lower(params, tokens, row, seeds, row).compile()


def test_chips_draw_their_parts_without_a_word_to_each_other(compiled):
    assert TALK.findall(compiled.as_text()) == []


def test_each_chip_takes_its_part_of_the_batch(compiled):
    text = compiled.as_text()
    assert f"u8[{ROWS // 4},64,64,3]" in text
    assert f"u8[{ROWS},64,64,3]" not in text
