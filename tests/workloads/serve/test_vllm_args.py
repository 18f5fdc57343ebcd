"""What vLLM is told about its slice, compared with what Ray Serve LLM makes of it.

vLLM itself is not in this environment: what it makes of it is seen in tests/vllm.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.llm._internal.serve.core.configs import accelerators
from ray.llm._internal.serve.core.configs.accelerators import TPUAccelerator, TPUConfig
from ray.util.tpu import get_tpu_worker_resources

from infra.tpu.slice import SliceSpec, TpuSlice
from workloads.serve.args import read
from workloads.serve.vllm import VllmArgs, build, llm_config

SHAPES = [  # machine type, topology, hosts, chips a host
    ("ct6e-standard-1t", "1x1", 1, 1),
    ("ct6e-standard-4t", "2x2", 1, 4),
    ("ct6e-standard-8t", "2x4", 1, 8),
    ("ct6e-standard-4t", "4x4", 4, 4),
    ("ct6e-standard-4t", "4x8", 8, 4),
    ("ct5lp-hightpu-8t", "2x4", 1, 8),
    ("ct5p-hightpu-4t", "2x2x2", 2, 4),
    ("tpu7x-standard-4t", "2x2x4", 4, 4),
]


def arguments(machine_type, topology, **changes):
    spec = SliceSpec(name="chat", machine_type=machine_type, topology=topology)
    return {
        "slice": vars(TpuSlice.resolve(spec).contract()),
        "settings": {"engine": "vllm", "max_sequence_length": 4096, "max_batch": 64},
        "model": "Qwen/Qwen3-4B",
        "model_name": "chat",
    } | changes


@pytest.mark.parametrize(("machine_type", "topology", "hosts", "chips"), SHAPES)
def test_a_replica_takes_all_chips_of_its_slice_by_hosts(
    machine_type, topology, hosts, chips, monkeypatch
):
    """Ray makes as many bundles as the topology has hosts, whatever the engine's size says."""
    asked = {}
    monkeypatch.setattr(
        accelerators,
        "slice_placement_group",
        lambda **options: asked.update(options) or SimpleNamespace(placement_group=None),
    )
    config = llm_config(read(VllmArgs, arguments(machine_type, topology)))
    accelerator = TPUAccelerator(TPUConfig(**config["accelerator_config"]))
    size, kind = config["engine_kwargs"]["tensor_parallel_size"], config["accelerator_type"]
    bundles: Any = accelerator.default_bundles(num_devices=size, accelerator_type_str=kind)
    accelerator.create_placement_group(
        bundles=bundles, strategy="PACK", name="", accelerator_type_str=kind
    )
    count, bundle = get_tpu_worker_resources(
        asked["topology"], asked["accelerator_version"], asked["resources_per_bundle"]
    )
    assert (count, bundle["TPU"]) == (hosts, chips)
    assert accelerator.requires_deferred_placement_group  # the slice is reserved whole


def test_the_engine_of_tpu7x_has_two_shards_a_chip():
    """As its published recipes have it: 8 for a host of 4 chips."""
    config = llm_config(read(VllmArgs, arguments("tpu7x-standard-4t", "2x2x1")))
    assert config["engine_kwargs"]["tensor_parallel_size"] == 8


def test_the_engine_learns_the_limits_of_the_declaration():
    config = llm_config(read(VllmArgs, arguments("ct6e-standard-8t", "2x4")))
    assert config["model_loading_config"] == {"model_id": "chat", "model_source": "Qwen/Qwen3-4B"}
    assert config["engine_kwargs"]["max_model_len"] == 4096
    assert config["engine_kwargs"]["max_num_seqs"] == 64
    assert "ray_actor_options" not in config["deployment_config"]  # its workers hold the chips


@pytest.mark.parametrize(
    ("topology", "changes", "told"),
    [
        ("4x8", {"settings": {"engine": "vllm", "mesh": {"tensor": 1}}}, "has 32"),
        (
            "4x8",
            {"settings": {"engine": "vllm", "mesh": {"tensor": 16}}},
            "is 16, but slice chat",
        ),
        ("4x8", {"settings": {"engine": "vllm", "mesh": {"data": 2, "tensor": 16}}}, "axis data"),
        ("4x4", {"replicas": 2}, "2 replicas need a slice each"),
        ("4x4", {"api_key_file": "/secrets/api-key"}, "checks no key"),
        ("4x4", {"model": ""}, "model"),
    ],
)
def test_what_does_not_fit_the_slice_is_refused_before_vllm_is_loaded(topology, changes, told):
    with pytest.raises(ValueError, match=told):
        build(arguments("ct6e-standard-4t", topology, **changes))
