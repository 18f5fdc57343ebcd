"""The shape of a Qwen3 decoder, and its translation from and to a Hugging Face `config.json`.

Only what the decoder computes is accepted: a checkpoint that needs anything else (another
architecture, scaled rotary positions, a sliding window, biases, quantised weights) is refused by
name instead of being served wrongly. Imports no JAX, so drivers may read a configuration.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from workloads.settings import ModelSettings

ARCHITECTURE = "Qwen3ForCausalLM"
MODEL_TYPE = "qwen3"

CUT_BY = {
    "fsdp": ("hidden_size",),
    "tensor": ("attention_heads", "key_value_heads", "intermediate_size", "vocab_size"),
}
"""Axes of a mesh, and the sizes of a model that each of them cuts into equal parts."""

_HF_NAMES = {  # ours: Hugging Face's, for every size a checkpoint must state
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "layers": "num_hidden_layers",
    "attention_heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads",
    "head_dim": "head_dim",
}
# Qwen3Config's own defaults, in transformers 4.51 to 5: absent keys mean these.
_HF_DEFAULTS = {"rope_theta": 10_000.0, "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768}
_MUST_BE = {
    "attention_bias": False,
    "hidden_act": "silu",
    "model_type": MODEL_TYPE,
    "quantization_config": None,
    "use_sliding_window": False,
}


class ModelError(ValueError):
    """A model that cannot be used as asked: all its faults, one a line."""

    def __init__(self, where: str, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(f"{where}: {fault}" for fault in self.faults))


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and special tokens. Field names are those of `ModelSettings`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    attention_heads: int
    key_value_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_epsilon: float
    max_position_embeddings: int
    """Longest sequence the model was made for, in tokens."""
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    """Any of these ends a completion."""
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ModelError("model", faults)

    @classmethod
    def of(
        cls,
        settings: ModelSettings,
        *,
        vocab_size: int,
        max_position_embeddings: int,
        eos_token_ids: tuple[int, ...] = (),
        pad_token_id: int | None = None,
    ) -> Self:
        """The model of `settings`, with what its tokenizer decides. Raises ModelError."""
        return cls(
            **settings.model_dump(),
            vocab_size=vocab_size,
            max_position_embeddings=max_position_embeddings,
            eos_token_ids=eos_token_ids,
            pad_token_id=pad_token_id,
        )

    def uneven(self, axes: Mapping[str, int]) -> list[str]:
        """A fault for each size that a mesh of such axes does not cut into equal parts."""
        return [
            f"{name} {getattr(self, name)} is not a multiple of mesh axis {axis} {axes[axis]}"
            for axis, names in CUT_BY.items()
            for name in names
            if getattr(self, name) % axes[axis]
        ]

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], *, where: str = "config.json") -> Self:
        """Read the content of a `config.json`. Raises ModelError that lists every obstacle."""
        faults = [*_unsupported(raw), *_wrong_types(raw)]
        if faults:
            raise ModelError(where, faults)
        number = {
            name: default if (found := raw.get(name)) is None else found
            for name, default in _HF_DEFAULTS.items()
        }
        rope_theta = (raw.get("rope_parameters") or {}).get("rope_theta", number["rope_theta"])
        return cls(
            **{ours: raw[theirs] for ours, theirs in _HF_NAMES.items()},
            rope_theta=float(rope_theta),
            rms_norm_epsilon=float(number["rms_norm_eps"]),
            max_position_embeddings=number["max_position_embeddings"],
            tie_word_embeddings=raw.get("tie_word_embeddings", False),
            bos_token_id=raw.get("bos_token_id"),
            eos_token_ids=_token_ids(raw.get("eos_token_id")),
            pad_token_id=raw.get("pad_token_id"),
        )

    def to_hf(self, *, dtype: str) -> dict[str, Any]:
        """The content of `config.json` for weights stored as `dtype` ("bfloat16", "float32")."""
        return {
            "architectures": [ARCHITECTURE],
            "attention_bias": False,
            "attention_dropout": 0.0,
            **{theirs: getattr(self, ours) for ours, theirs in _HF_NAMES.items()},
            **self.special_tokens(),
            "hidden_act": "silu",
            "initializer_range": 0.02,
            "max_position_embeddings": self.max_position_embeddings,
            "max_window_layers": self.layers,
            "model_type": MODEL_TYPE,
            "rms_norm_eps": self.rms_norm_epsilon,
            "rope_scaling": None,
            "rope_theta": self.rope_theta,
            "sliding_window": None,
            "tie_word_embeddings": self.tie_word_embeddings,
            "torch_dtype": dtype,
            "use_cache": True,
            "use_sliding_window": False,
        }

    def special_tokens(self) -> dict[str, Any]:
        """Hugging Face's keys for the special tokens, as config and generation config have them."""
        eos = self.eos_token_ids
        return {
            "bos_token_id": self.bos_token_id,
            "eos_token_id": eos[0] if len(eos) == 1 else list(eos) or None,
            "pad_token_id": self.pad_token_id,
        }

    def difference(self, other: "ModelConfig") -> list[str]:
        """The fields in which `other` is not this model, e.g. "layers is 2, not 4"."""
        return [
            f"{field.name} is {theirs}, not {ours}"
            for field in fields(self)
            if (ours := getattr(self, field.name)) != (theirs := getattr(other, field.name))
        ]

    def _faults(self) -> Iterator[str]:
        if self.attention_heads % self.key_value_heads:
            yield (
                f"{self.attention_heads} attention heads cannot share"
                f" {self.key_value_heads} key-value heads evenly"
            )
        if self.head_dim % 2:
            yield f"head_dim {self.head_dim} is odd, and rotary positions turn pairs"
        ids = {"bos": self.bos_token_id, "pad": self.pad_token_id}
        ids |= {f"eos[{i}]": token for i, token in enumerate(self.eos_token_ids)}
        for name, token in ids.items():
            if token is not None and not 0 <= token < self.vocab_size:
                yield f"{name} token {token} is outside the vocabulary of {self.vocab_size}"


def read_config(folder: Path) -> ModelConfig:
    """The model in `folder`, without its weights. Raises ModelError that lists every obstacle."""
    config_path, generation_path = folder / "config.json", folder / "generation_config.json"
    config = ModelConfig.from_hf(read_json(config_path), where=str(config_path))
    if not generation_path.exists():
        return config
    # Instruction-tuned checkpoints end a turn with more tokens than config.json names.
    ends = _token_ids(read_json(generation_path).get("eos_token_id"))
    return replace(config, eos_token_ids=ends) if ends else config


def fingerprint(model: str | Path) -> Any:
    """What tells one model from another without reading all its weights, as JSON."""
    folder = Path(model)
    texts = [folder / name for name in ("config.json", "tokenizer.json")]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in texts]
    weights = [(path, path.stat()) for path in sorted(folder.glob("*.safetensors"))]
    return [*digests, *((path.name, stat.st_size, stat.st_mtime_ns) for path, stat in weights)]


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises ModelError if there is none."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelError(str(path), ["no such file; a Hugging Face folder has one"]) from None
    except (OSError, ValueError) as error:
        raise ModelError(str(path), [f"cannot be read as JSON ({error})"]) from None
    if not isinstance(content, dict):
        raise ModelError(str(path), ["is not a JSON object"])
    return content


def _token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """Hugging Face writes one token id as a number and several as a list."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def _unsupported(raw: Mapping[str, Any]) -> Iterator[str]:
    for key, wanted in _MUST_BE.items():
        found = raw.get(key, None if key == "model_type" else wanted)
        if found != wanted:
            yield f"{key} is {found!r}; only {wanted!r} is supported"
    architectures = raw.get("architectures")
    if architectures is not None and ARCHITECTURE not in architectures:
        yield f"architectures is {architectures!r}; only {ARCHITECTURE} is supported"
    # transformers 4 calls it rope_scaling, 5 rope_parameters; "default" is plain RoPE in both.
    for key in ("rope_scaling", "rope_parameters"):
        rope = raw.get(key) or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            yield f"{key} asks for {kind!r}; only unscaled rotary positions are supported"
    other_layers = set(raw.get("layer_types") or ()) - {"full_attention"}
    if other_layers:
        yield f"layer_types has {', '.join(sorted(other_layers))}; only full_attention is supported"


def _wrong_types(raw: Mapping[str, Any]) -> Iterator[str]:
    for name in _HF_NAMES.values():
        value = raw.get(name)
        if type(value) is not int or value < 1:
            yield f"{name} is {value!r}, not a positive whole number"
    for name in _HF_DEFAULTS:
        value = raw.get(name)
        if value is not None and (type(value) not in (int, float) or value <= 0):
            yield f"{name} is {value!r}, not a positive number"
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = raw.get(name)
        tokens = value if name == "eos_token_id" and isinstance(value, list) else [value]
        if not all(token is None or type(token) is int for token in tokens):
            yield f"{name} is {value!r}, not a token's number"
