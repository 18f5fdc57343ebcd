"""The sizes of a served model, from its `config.json` or from a table of well-known ones.

Only decoders whose every layer is alike are counted: attention with shared key-value heads and a
gated feed-forward. Of others nothing is guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.config.parse import is_mapping
from workloads.settings import LoraSettings, ModelSettings

COUNTED = ("llama", "mistral", "qwen2", "qwen3")
"""Values of `model_type`: decoders of the form above."""

WEIGHT_BYTES = {"float32": 4, "bfloat16": 2}


class UncountedError(Exception):
    """Why a model's sizes are not known, as the end of a sentence about it."""


@dataclass(frozen=True)
class ModelFacts:
    hidden_size: int
    intermediate_size: int
    layers: int
    attention_heads: int
    key_value_heads: int
    head_dim: int
    vocab_size: int
    tied: bool = False
    """Whether the embedding is also the last layer."""
    weight_bits: int | None = None
    """If the weights are quantized; else they are served in the type that the stack declares."""
    longest: int | None = None
    """Tokens that the model was made for, if known."""

    @classmethod
    def of_settings(cls, model: ModelSettings, vocab_size: int) -> "ModelFacts":
        """A model that a stack trains. Its embedding is always tied."""
        sizes = model.model_dump(exclude={"rope_theta", "rms_norm_epsilon"})
        return cls(**sizes, vocab_size=vocab_size, tied=True)

    @property
    def parameters(self) -> int:
        """Norms of queries and keys are counted, which some of these models lack: they are few."""
        width, head = self.hidden_size, self.head_dim
        attention = 2 * width * head * (self.attention_heads + self.key_value_heads)
        feed_forward = 3 * width * self.intermediate_size
        norms = 2 * width + 2 * head
        embeddings = (1 if self.tied else 2) * self.vocab_size * width
        return embeddings + self.layers * (attention + feed_forward + norms) + width

    def adapter_parameters(self, lora: LoraSettings) -> int:
        """A pair of matrices for each target of each layer."""
        width, wide = self.hidden_size, self.intermediate_size
        heads = self.attention_heads * self.head_dim
        shared = self.key_value_heads * self.head_dim
        sides = {
            **dict.fromkeys(("q_proj", "o_proj"), width + heads),
            **dict.fromkeys(("k_proj", "v_proj"), width + shared),
            **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), width + wide),
        }
        return self.layers * lora.rank * sum(sides[target] for target in lora.targets)


def of_config(raw: Mapping[str, Any]) -> ModelFacts:
    """Of the content of a Hugging Face `config.json`. Raises UncountedError."""
    if raw.get("model_type") not in COUNTED:
        raise UncountedError(f"its model_type is {raw.get('model_type')!r}")
    heads = _size(raw, "num_attention_heads")
    width = _size(raw, "hidden_size")
    longest = raw.get("max_position_embeddings")
    return ModelFacts(
        hidden_size=width,
        intermediate_size=_size(raw, "intermediate_size"),
        layers=_size(raw, "num_hidden_layers"),
        attention_heads=heads,
        key_value_heads=_size(raw, "num_key_value_heads", heads),
        head_dim=_size(raw, "head_dim", max(1, width // heads)),
        vocab_size=_size(raw, "vocab_size"),
        tied=raw.get("tie_word_embeddings") is True,
        weight_bits=_weight_bits(raw.get("quantization_config")),
        longest=longest if type(longest) is int else None,
    )


def _size(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 1:
        raise UncountedError(f"its {key} is {value!r}, not a positive whole number")
    return value


def _weight_bits(quantization: Any) -> int | None:
    if quantization is None:
        return None
    bits = quantization.get("bits") if is_mapping(quantization) else None
    if is_mapping(quantization) and quantization.get("quant_method") == "fp8":
        return 8
    if type(bits) is not int or bits < 1:
        raise UncountedError("its quantization_config does not say how many bits a weight has")
    return bits


# Source: MaxText, src/maxtext/configs/models (2026-11), which converts the published checkpoints.
_LLAMA_8B = ModelFacts(4096, 14336, 32, 32, 8, 128, 128_256)
_LLAMA_70B = ModelFacts(8192, 28672, 80, 64, 8, 128, 128_256)
KNOWN = {
    "meta-llama/Llama-3-8B": _LLAMA_8B,
    "meta-llama/Llama-3.1-8B": _LLAMA_8B,
    "meta-llama/Llama-3-70B": _LLAMA_70B,
    "meta-llama/Llama-3.1-70B": _LLAMA_70B,
    "meta-llama/Llama-3.3-70B": _LLAMA_70B,
    "mistralai/Mistral-7B-v0.1": ModelFacts(4096, 14336, 32, 32, 8, 128, 32_000),
    "Qwen/Qwen3-4B": ModelFacts(2560, 9728, 36, 32, 8, 128, 151_936, tied=True),
    "Qwen/Qwen3-8B": ModelFacts(4096, 12288, 36, 32, 8, 128, 151_936),
    "Qwen/Qwen3-32B": ModelFacts(5120, 25600, 64, 64, 8, 128, 151_936),
}


def known(hub: str) -> ModelFacts | None:
    """Of a model of the hub; taught to follow instructions, it has the same sizes."""
    base = hub.replace("/Meta-Llama-", "/Llama-").replace("-Instruct", "")
    return KNOWN.get(base)
