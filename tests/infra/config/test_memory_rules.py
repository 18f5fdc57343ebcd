"""A model that cannot fit its chips is refused before they are paid for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.config.model_facts import ModelFacts
from tests.infra.config.stack import changed, faults, on_gke, only
from workloads.settings import ModelSettings

# As Llama 3 70B, whose 70.6 billion count its embedding twice.
LARGE = {
    "layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "attention_heads": 64,
    "key_value_heads": 8,
    "head_dim": 128,
}


@settings(max_examples=5, deadline=None)
@given(
    st.builds(
        ModelSettings,
        layers=st.integers(1, 3),
        hidden_size=st.integers(1, 40),
        intermediate_size=st.integers(1, 40),
        attention_heads=st.just(6),
        key_value_heads=st.sampled_from([1, 2, 3, 6]),
        head_dim=st.sampled_from([2, 4, 8]),
    ),
    st.integers(300, 1000),
)
def test_parameters_are_as_many_as_the_model_has(model, vocab_size):
    import jax  # here, and the next: they take seconds, and one test needs them
    from flax import nnx

    from workloads.model.config import ModelConfig
    from workloads.model.qwen3 import Qwen3

    config = ModelConfig.of(model, vocab_size=vocab_size, max_position_embeddings=64)
    made = nnx.eval_shape(lambda: Qwen3(config, rngs=nnx.Rngs(0)))
    arrays = jax.tree.leaves(nnx.state(made, nnx.Param))
    counted = ModelFacts.of_settings(model, vocab_size).parameters
    assert counted == sum(array.size for array in arrays)


@pytest.mark.parametrize(
    ("machine", "topology", "mesh", "size"),
    [
        # 68.5 billion x 16 bytes are 1020 GiB, an eighth a chip: copies of the model save nothing.
        ("ct6e-standard-4t", "4x4", {"tensor": 8, "data": 2}, "127.5 GiB of each chip"),
        ("ct6e-standard-8t", "2x4", {"tensor": 8}, "one of v6e has 32"),
        ("ct5lp-hightpu-8t", "2x4", {"tensor": 8}, "one of v5e has 16"),
        # 96 GiB a device, of which a chip has two.
        (
            "tpu7x-standard-4t",
            "2x2x2",
            {"data": 2, "tensor": 8},
            "each device, and one of tpu7x has 96",
        ),
        ("tpu7x-standard-4t", "2x2x2", {"fsdp": 2, "tensor": 8}, None),
        (
            "ct6e-standard-4t",
            "4x4",
            {"fsdp": 8, "data": 2},
            "use a larger mesh.fsdp or mesh.tensor",
        ),
        ("tpu7x-standard-4t", "2x2x2", {"fsdp": 8, "tensor": 2}, None),
    ],
)
def test_training_is_refused_where_weights_and_moments_do_not_fit(machine, topology, mesh, size):
    tpu = {"name": "train", "machine_type": machine, "topology": topology}
    stack = changed(
        slices__0=tpu, workloads__1__mesh=mesh, workloads__1__model=LARGE, workloads__2__mesh=None
    )
    del stack["workloads"][2]
    lines = faults(stack)
    assert lines == [] if size is None else size in only(lines, "workloads[1].model")


def test_a_cache_that_does_not_fit_is_refused():
    """2 x 80 layers x 8 heads x 128 x 2 bytes is 320 KiB a token."""
    stack = on_gke(
        slices__0={"name": "train", "machine_type": "tpu7x-standard-4t", "topology": "2x2x2"},
        workloads__1__mesh={"fsdp": 2, "tensor": 8},
        workloads__1__model=LARGE,
        workloads__2={
            "name": "chat",
            "kind": "serve",
            "slice": "chat",
            "model": "pretrain",
            "max_sequence_length": 8192,
            "max_batch": 64,
        },
    )
    line = only(faults(stack), "workloads[2]")
    # 64 x 8192 tokens are 160 GiB, an eighth a chip, beside 16 GiB of weights.
    assert "weights and the cache take 35.9 GiB of each chip, and one of v6e has 32" in line
    stack["workloads"][2]["max_batch"] = 32
    assert faults(stack) == []


def test_a_cache_is_cut_by_both_axes():
    """128 KiB a token are 64 GiB for 64 x 8192 of them, 8 GiB on each of 8 chips."""
    model = {
        "layers": 32,
        "hidden_size": 1024,
        "intermediate_size": 1024,
        "attention_heads": 8,
        "key_value_heads": 8,
        "head_dim": 128,
    }
    server = {"name": "chat", "kind": "serve", "slice": "chat", "model": "pretrain"}
    for mesh in ({"data": 8}, {"tensor": 8}, {"data": 2, "tensor": 4}):
        sizes = {"max_sequence_length": 8192, "max_batch": 64, "mesh": mesh}
        stack = on_gke(workloads__1__model=model, workloads__2={**server, **sizes})
        assert faults(stack) == []
        stack["workloads"][2]["max_batch"] = 256
        assert "weights and the cache" in only(faults(stack), "workloads[2]")
