"""What a user may choose for a workload, in the words of the stack file.

`infra.config` reads these from `raytpu:workloads` and hands them on as JSON; the entrypoints read
them back. One definition, so a setting is named, typed and limited in one place. Imports neither
Ray nor JAX.
"""

import math
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]
LoraTarget = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""A projection of every layer: four of the attention, three of the feed-forward."""
RaggedBatch = Literal["carry", "drop", "pad", "raise"]


class Settings(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MeshSettings(Settings):
    """Axes of a mesh of JAX's devices, one a chip, of tpu7x two. Their product is the number."""

    data: PositiveInt = 1
    """Copies of the model; each takes its part of the batch."""
    tensor: PositiveInt = 1
    """Devices that share one copy: attention heads, feed-forward and vocabulary are cut by it."""

    @property
    def axes(self) -> dict[str, int]:
        """Name and size, outermost first: the further in, the more an axis talks."""
        return {"data": self.data, "fsdp": 1, "tensor": self.tensor}

    @property
    def devices(self) -> int:
        return math.prod(self.axes.values())

    def __str__(self) -> str:
        told = (f"{name} {size}" for name, size in self.axes.items() if name != "fsdp" or size > 1)
        return " x ".join(told)


class TrainMesh(MeshSettings):
    """A mesh with an axis that a server has no use for, as it would fetch weights at each token."""

    fsdp: PositiveInt = 1
    """Devices that each keep a part of one copy and of the optimizer's state, fetch the rest layer
    by layer, and take a part of the batch (fully sharded data parallel)."""

    @property
    def axes(self) -> dict[str, int]:
        return {**super().axes, "fsdp": self.fsdp}

    @property
    def batch_parts(self) -> int:
        """Into how many parts a batch is cut."""
        return self.data * self.fsdp


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


class LoraSettings(Settings):
    """Adapters, trained in place of the model (LoRA, arXiv 2106.09685).

    A product of two thin matrices is added to each named projection; all else stays as it is.
    """

    rank: PositiveInt
    """Columns of the one matrix and rows of the other: the more, the more can be learned."""
    alpha: Annotated[float, Field(gt=0)]
    """The product counts alpha / rank times."""
    targets: Annotated[tuple[LoraTarget, ...], Field(min_length=1, strict=False)] = get_args(
        LoraTarget
    )
    """By default all seven."""


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


class ProfileSettings(Settings):
    """Steps of a run to be traced."""

    first_step: PositiveInt
    """Not the first of an attempt, which compiles."""
    steps: Annotated[int, Field(ge=1, le=20)] = 3
    """A trace takes tens of megabytes a step and host."""

    @property
    def traced(self) -> range:
        return range(self.first_step, self.first_step + self.steps)


class TrainSettings(Settings):
    """One training run."""

    model: ModelSettings = ModelSettings()
    mesh: TrainMesh
    steps: PositiveInt
    global_batch: PositiveInt
    """Sequences a step, over all hosts."""
    ragged_batch: RaggedBatch = "carry"
    """What becomes of the rows at the end of an epoch that fill no batch. carry: they open the next
    epoch's first batch. drop: the epoch goes without them, and the log says how many they are. pad:
    rows that count for nothing fill their batch. raise: the run is refused."""
    gradient_accumulation_steps: PositiveInt = 1
    """Parts of a batch that are computed one after the other before the parameters change once:
    the more, the less memory, for the same update."""
    remat: Literal["none", "layers"] = "none"
    """What the backward pass computes anew instead of keeping: all but the input of each layer
    takes a third more time, and memory for one layer instead of all."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of activations and matrix products; parameters and the optimizer stay in float32. With lora,
    also of the weights that are not trained."""
    lora: LoraSettings | None = Field(default=None, exclude_if=lambda lora: lora is None)
    """By default every weight is trained."""
    evaluate_every: PositiveInt = 100
    """Steps between evaluations on held-out text; the last step is always evaluated."""
    checkpoint_every: PositiveInt = 100
    """Steps between checkpoints; the last step is always saved."""
    keep_checkpoints: PositiveInt = 2
    log_every: PositiveInt = 10
    max_failures: Annotated[int, Field(ge=0)] = 3
    """Lost hosts or crashes after which the run is given up."""
    profile: ProfileSettings | None = Field(default=None, exclude_if=lambda steps: steps is None)
    """By default no step is traced."""
    seed: int = 0

    def learned(self) -> dict[str, Any]:
        """The settings that decide what a run learns, in JSON's types.

        The others decide how it is carried out, and may differ when a run goes on.
        """
        carried_out = {
            "mesh",
            "gradient_accumulation_steps",
            "remat",
            "evaluate_every",
            "checkpoint_every",
            "keep_checkpoints",
            "log_every",
            "max_failures",
            "profile",
        }
        return self.model_dump(mode="json", exclude=carried_out)


VLLM_MEMORY_PART = 0.9
"""Of a chip, that vLLM may fill with weights and cache. The rest is for what programs need."""


class SamplerSettings(Settings):
    """How a diffusion model comes from noise to a picture."""

    steps: PositiveInt = 50
    """Of DDIM: the more, the finer, and the longer it takes."""
    guidance_scale: Annotated[float, Field(ge=0)] = 5.0
    """How much the text counts. 1 takes the model's word for it, in half of the time, for others
    also ask the model what it would draw without the text."""


class ServeSettings(Settings):
    """An OpenAI-compatible endpoint for one model."""

    engine: Literal["jax", "vllm", "diffusion"] = "jax"
    """Of text, or with diffusion of pictures."""
    mesh: MeshSettings | None = None
    """By default each replica's devices share one copy of the model. With engine diffusion each
    has one, and draws its part of a batch."""
    max_sequence_length: Annotated[int, Field(ge=8)] = 256
    """Tokens of prompt and completion together; also the length of the KV cache. Not asked by
    engine diffusion."""
    max_batch: PositiveInt = 8
    """Requests decoded together on one slice; with engine diffusion, pictures drawn together."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    sampler: SamplerSettings | None = Field(default=None, exclude_if=lambda how: how is None)
    """Of engine diffusion alone."""

    @property
    def sampler_used(self) -> SamplerSettings:
        return self.sampler or SamplerSettings()

    def mesh_on(self, devices: int) -> MeshSettings:
        """The mesh of a replica that has so many devices."""
        if self.mesh is not None:
            return self.mesh
        axis = "data" if self.engine == "diffusion" else "tensor"
        return MeshSettings(**{axis: devices})


class InferSettings(Settings):
    """Offline batch inference: what a model makes of each prompt of a set of files."""

    task: Literal["generate", "score"] = "generate"
    """A completion of each prompt, or the likelihood that the model gives to its tokens."""
    prompts: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    """Files, folders or globs of .jsonl or .parquet, local or gs://."""
    prompt_column: str = "prompt"
    """Holds text, or lists of token ids, of any lengths."""
    id_column: str | None = "id"
    """Copied to the output as it is: text or whole numbers. With null, rows are told apart by
    their file and their place in it, which the output has in any case."""
    mesh: MeshSettings | None = None
    """By default each host's devices share one copy of the model."""
    batch_size: PositiveInt = 64
    """Prompts at once, over all hosts."""
    max_sequence_length: Annotated[int, Field(ge=8)] = 256
    """Tokens of prompt and completion together. A longer prompt gets an error in place of an
    answer."""
    max_tokens: PositiveInt = 64
    """Of a completion."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 takes the most likely token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Draw from the fewest tokens whose probabilities reach this sum."""
    seed: int = 0
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    rows_per_part: PositiveInt = 1024
    """Rows of an output file at most. A part that is not finished is computed anew when a host is
    lost; those that are, never."""
    max_failures: Annotated[int, Field(ge=0)] = 3
    """Lost hosts or crashes after which the run is given up."""

    @property
    def longest_prompt(self) -> int:
        """In tokens."""
        return self.max_sequence_length - (self.max_tokens if self.task == "generate" else 0)

    def mesh_on(self, workers: int, devices_per_host: int) -> MeshSettings:
        """The mesh over so many hosts."""
        return self.mesh or MeshSettings(data=workers, tensor=devices_per_host)

    def decisive(self) -> dict[str, Any]:
        """The settings that decide what the output is; the others, how it is computed."""
        computed = {"prompts", "mesh", "batch_size", "max_failures"}
        return self.model_dump(mode="json", exclude=computed)
