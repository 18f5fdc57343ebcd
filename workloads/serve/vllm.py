"""The Ray Serve application with vLLM as its engine, through Ray Serve LLM.

Named in Serve's declarative config as `workloads.serve.vllm:build`. All that ties the engine to its
slice is decided here: vLLM on TPU takes a whole slice, and hangs if its parallel sizes do not cover
it or if its topology is not said (Ray then asks for chips one by one, and may mix slices).
"""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from workloads import versions
from workloads.model.config import ModelError
from workloads.serve.args import ServeArgs, read
from workloads.settings import VLLM_MEMORY_PART

CPU_CACHE_BYTES = 1 << 30
"""Of keys and values, where a process of this machine stands in for the slice."""


class VllmArgs(ServeArgs):
    model: str = Field(min_length=1)
    """A name of Hugging Face's hub, or a folder that every host sees."""
    device: Literal["tpu", "cpu"] = "tpu"
    """With cpu, vLLM's build for CPUs computes in one process what the slice's chips would."""

    @model_validator(mode="after")
    def _fits_the_slice(self) -> Self:
        faults = self.faults_of_shape()
        if self.mesh.data > 1:
            faults.append(
                f"mesh axis data is {self.mesh.data}, but a replica of vLLM holds one copy of the "
                "model; declare smaller slices and more of them"
            )
        if self.api_key_file is not None:
            faults.append(
                "api_key_file is set, but vLLM's endpoint checks no key; use engine jax, or a "
                "gateway before the service"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return self


def build(args: dict[str, Any]) -> Any:
    """The application for `args`, which VllmArgs describes.

    Raises ValueError with all faults in one line: Serve's status ends with it.
    """
    try:
        config = llm_config(read(VllmArgs, args))
    except ModelError as error:
        raise ValueError("; ".join(str(error).splitlines())) from None
    if fault := versions.vllm_fault():
        raise ValueError(fault)
    # Here: it imports vLLM, which only images with that engine have.
    from ray.serve.llm import LLMConfig, build_openai_app

    return build_openai_app({"llm_configs": [LLMConfig(**config)]})


def llm_config(args: VllmArgs) -> dict[str, Any]:
    """The arguments of Ray Serve LLM's LLMConfig."""
    settings = args.settings
    placement, engine = _on_cpu(args) if args.device == "cpu" else _on_tpu(args)
    return {
        "model_loading_config": {"model_id": args.model_name, "model_source": args.model},
        **placement,
        "engine_kwargs": {
            **engine,
            "max_model_len": settings.max_sequence_length,
            "max_num_seqs": settings.max_batch,
            "dtype": settings.dtype,
        },
        "deployment_config": {"num_replicas": args.replicas},
    }


def _on_tpu(args: VllmArgs) -> tuple[dict[str, Any], dict[str, Any]]:
    """The slice, reserved whole by its topology.

    The replica itself asks for no chip: its engine's workers do, one a host.
    """
    tpu = args.slice
    placement = {
        "accelerator_type": tpu.accelerator_type,
        "accelerator_config": {"kind": "tpu", "topology": tpu.topology},
    }
    engine = {
        "tensor_parallel_size": args.mesh.tensor,
        "gpu_memory_utilization": VLLM_MEMORY_PART,  # of a TPU too, in spite of its name
    }
    return placement, engine


def _on_cpu(args: VllmArgs) -> tuple[dict[str, Any], dict[str, Any]]:
    """The chips of the slice's first host, and its head resource, of which a slice has one."""
    tpu = args.slice
    first_host = {"TPU": tpu.chips_per_host, f"TPU-{tpu.pod_type}-head": 1}
    placement = {
        "accelerator_config": {"kind": "cpu"},
        "placement_group_config": {"bundles": [first_host]},
    }
    # Eager: a compilation by Inductor takes longer than a small model's whole life.
    return placement, {"enforce_eager": True, "kv_cache_memory_bytes": CPU_CACHE_BYTES}
