"""What the installed vLLM and Ray Serve LLM make of our arguments, and vLLM's rules of cutting."""

import itertools
from types import SimpleNamespace

import pytest
from ray.llm._internal.serve.core.server.llm_server import LLMServer
from ray.serve.llm import LLMConfig
from vllm.model_executor.layers import linear

from infra.config.model_facts import ModelFacts
from infra.config.vllm_rules import divides
from infra.tpu.slice import SliceSpec, TpuSlice
from workloads.serve.vllm import VllmArgs, llm_config
from workloads.settings import ServeSettings

SHAPES = [  # machine type, topology, hosts, chips a host
    ("ct6e-standard-8t", "2x4", 1, 8),
    ("ct6e-standard-4t", "4x4", 4, 4),
    ("ct5lp-hightpu-4t", "2x2", 1, 4),
]


@pytest.fixture(autouse=True)
def without_a_cluster(monkeypatch):
    """Asked for its runtime environment, Ray would start a cluster of its own."""
    context = SimpleNamespace(runtime_env={})
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)


def configured(machine_type, topology, device):
    spec = SliceSpec(name="chat", machine_type=machine_type, topology=topology)
    args = VllmArgs(
        slice=TpuSlice.resolve(spec).contract(),
        settings=ServeSettings(engine="vllm"),
        model="Qwen/Qwen3-4B",
        model_name="chat",
        device=device,
    )
    return LLMConfig(**llm_config(args))


@pytest.mark.parametrize(("machine_type", "topology", "hosts", "chips"), SHAPES)
def test_on_a_tpu_the_engine_asks_for_all_chips_once_and_its_actor_for_none(
    machine_type, topology, hosts, chips
):
    config = configured(machine_type, topology, "tpu")
    bundles = config.get_engine_config().placement_bundles
    assert [bundle["TPU"] for bundle in bundles] == [chips] * hosts
    options = LLMServer.get_deployment_options(config)
    assert "placement_group_bundles" not in options  # the slice is reserved whole, by the replica
    assert options["ray_actor_options"].get("resources") is None
    engine = config.get_engine_config().get_initialization_kwargs()
    assert engine["distributed_executor_backend"] == "ray"


@pytest.mark.parametrize(("machine_type", "topology", "hosts", "chips"), SHAPES)
def test_on_a_laptop_one_process_holds_the_slice_by_its_head(machine_type, topology, hosts, chips):
    config = configured(machine_type, topology, "cpu")
    options = LLMServer.get_deployment_options(config)
    pod_type = TpuSlice.resolve(
        SliceSpec(name="chat", machine_type=machine_type, topology=topology)
    ).pod_type
    assert options["placement_group_bundles"] == [
        {"CPU": 1, "GPU": 0, "TPU": chips, f"TPU-{pod_type}-head": 1}
    ]
    engine = config.get_engine_config().get_initialization_kwargs()
    assert engine["distributed_executor_backend"] == "mp"
    assert hosts >= 1


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16])
def test_heads_divide_over_chips_where_vllm_s_own_layers_are_made(monkeypatch, size):
    """Of vLLM's layers: its layer of queries, keys and values, and its feed-forward."""
    group = SimpleNamespace(world_size=size, rank_in_group=0)
    monkeypatch.setattr("vllm.distributed.parallel_state._TP", group)
    agreed = set()
    for heads, shared, wide in itertools.product((4, 6, 8, 12, 16), (1, 2, 3, 4, 6, 8), (96, 100)):
        facts = ModelFacts(64, wide, 1, heads, shared, 16, 320)
        agreed.add(divides(facts, size))
        assert divides(facts, size) == _made(heads, shared, wide), (heads, shared, wide, size)
    assert agreed == ({True} if size == 1 else {True, False})


def _made(heads, shared, wide):
    try:
        linear.QKVParallelLinear(64, 16, heads, shared, bias=False)
        linear.MergedColumnParallelLinear(64, [wide, wide], bias=False)
        linear.RowParallelLinear(wide, 64, bias=False)
    except (AssertionError, ValueError):
        return False
    return True
