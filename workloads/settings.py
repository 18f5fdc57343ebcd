"""What a user may choose for a workload, in the words of the stack file.

`infra.config` reads these from `raytpu:workloads` and hands them on as JSON; the entrypoints read
them back. One definition, so a setting is named, typed and limited in one place. Imports neither
Ray nor JAX.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MeshSettings(Settings):
    """Axes of the device mesh, outermost first. Their product is the number of chips."""

    data: PositiveInt = 1
    """Copies of the model; each takes its part of the batch."""
    tensor: PositiveInt = 1
    """Chips that share one copy: attention heads, feed-forward and vocabulary are cut by it."""

    @property
    def devices(self) -> int:
        return self.data * self.tensor


class ModelSettings(Settings):
    """A decoder with the Qwen3 architecture. The vocabulary's size comes from the tokenizer."""

    hidden_size: PositiveInt = 128
    intermediate_size: PositiveInt = 384
    layers: PositiveInt = 4
    attention_heads: PositiveInt = 8
    key_value_heads: PositiveInt = 4
    head_dim: Annotated[int, Field(ge=2, multiple_of=2)] = 32
    rope_theta: Annotated[float, Field(gt=0)] = 1_000_000.0
    rms_norm_epsilon: Annotated[float, Field(gt=0)] = 1e-6


class DataSettings(Settings):
    """Text to packed token sequences."""

    sources: tuple[str, ...] = Field(default=(), strict=False)
    """Files, folders or globs of .txt, .jsonl or .parquet, local or gs://. None: the English
    documentation that ships with Python."""
    text_column: str = "text"
    """Column of .jsonl and .parquet that holds a document."""
    vocab_size: Annotated[int, Field(ge=300)] = 2048
    """Tokens of the byte-level BPE tokenizer, special tokens included (256 are the bytes)."""
    sequence_length: Annotated[int, Field(ge=8)] = 128
    held_out_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Part of the documents that training never sees."""
    seed: int = 0


class TrainSettings(Settings):
    """One training run."""

    model: ModelSettings = ModelSettings()
    mesh: MeshSettings
    steps: PositiveInt
    global_batch: PositiveInt
    """Sequences a step, over all hosts."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of activations and matrix products; parameters and the optimizer stay in float32."""
    evaluate_every: PositiveInt = 100
    """Steps between evaluations on held-out text; the last step is always evaluated."""
    checkpoint_every: PositiveInt = 100
    """Steps between checkpoints; the last step is always saved."""
    keep_checkpoints: PositiveInt = 2
    log_every: PositiveInt = 10
    max_failures: Annotated[int, Field(ge=0)] = 3
    """Lost hosts or crashes after which the run is given up."""
    seed: int = 0

    def learned(self) -> dict[str, Any]:
        """The settings that decide what a run learns, in JSON's types.

        The others decide how it is carried out, and may differ when a run goes on.
        """
        carried_out = {
            "mesh",
            "evaluate_every",
            "checkpoint_every",
            "keep_checkpoints",
            "log_every",
            "max_failures",
        }
        return self.model_dump(mode="json", exclude=carried_out)


class ServeSettings(Settings):
    """An OpenAI-compatible endpoint for one model."""

    engine: Literal["jax", "vllm"] = "jax"
    mesh: MeshSettings | None = None
    """By default each replica's chips share one copy of the model."""
    max_sequence_length: Annotated[int, Field(ge=8)] = 256
    """Tokens of prompt and completion together; also the length of the KV cache."""
    max_batch: PositiveInt = 8
    """Requests decoded together on one slice."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"

    def mesh_on(self, chips: int) -> MeshSettings:
        """The mesh of a replica that has so many chips."""
        return self.mesh or MeshSettings(tensor=chips)
