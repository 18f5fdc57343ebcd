"""A model's adapters in the layout of Hugging Face's PEFT, for any program that loads those."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils

from workloads.model import hf
from workloads.model.qwen3 import Qwen3
from workloads.settings import LoraSettings

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_MATRICES = {"lora_a": "lora_A", "lora_b": "lora_B"}


def tensor_name(path: tuple[Any, ...]) -> str:
    """PEFT's name of the adapter's matrix at `path`."""
    *owner, matrix = path
    return ".".join(["base_model.model.model", *map(str, owner), _MATRICES[matrix], "weight"])


def export(model: Qwen3, folder: Path, *, lora: LoraSettings) -> None:
    """Write the model's adapters to `folder`, which is replaced if it exists, in float32.

    Every process of the model's mesh must call this; process 0 alone writes.
    """
    tensors: dict[str, np.ndarray] = {}
    for path, matrix in hf.by_layer(nnx.state(model, nnx.LoRAParam)):
        whole = multihost_utils.process_allgather(matrix, tiled=True)
        tensors[tensor_name(path)] = np.ascontiguousarray(whole.T)  # torch's are (out, in)
    if jax.process_index() == 0:
        with hf.replaced_whole(folder) as fresh:
            hf.write(fresh, {CONFIG: _config(lora)}, WEIGHTS, tensors)


def _config(lora: LoraSettings) -> dict[str, Any]:
    """Where the base lies is left to whoever loads it: a path of this cluster helps nobody else."""
    return {
        "base_model_name_or_path": None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": lora.rank,
        "target_modules": list(lora.targets),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
