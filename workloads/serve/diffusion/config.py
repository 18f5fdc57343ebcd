"""The shape of a diffusion model, as the `config.json` of its folder says it. Imports no JAX.

The layout is this project's own: `config.json`, `model.safetensors` and `tokenizer.json`.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from workloads.model.config import ModelError, read_json
from workloads.settings import PositiveInt, Settings

MODEL_TYPE = "raytpu-diffusion"


class DiffusionConfig(Settings):
    """A transformer that takes the noise out of pictures, told by a text what is in them."""

    model_type: Literal["raytpu-diffusion"] = MODEL_TYPE
    trained: bool
    """Whether the weights were learned. Without that its pictures are noise, and answers say so."""
    image_size: PositiveInt = 32
    """Pixels of a picture's side."""
    patch_size: PositiveInt = 4
    """Pixels of the side of a patch, which the transformer takes for one token."""
    hidden_size: PositiveInt = 64
    layers: PositiveInt = 2
    attention_heads: PositiveInt = 4
    text_layers: PositiveInt = 1
    text_length: PositiveInt = 64
    """Tokens of a prompt at most."""
    vocab_size: PositiveInt
    noise_steps: PositiveInt = 1000
    """Steps by which training went from a picture to noise."""
    first_beta: float = Field(default=1e-4, gt=0, lt=1)
    last_beta: float = Field(default=0.02, gt=0, lt=1)
    """Variance of the noise that the first and last step add; in between it grows evenly."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        faults = []
        if self.image_size % self.patch_size:
            faults.append(f"patch_size {self.patch_size} does not divide {self.image_size} pixels")
        if self.hidden_size % (2 * self.attention_heads):
            faults.append(
                f"hidden_size {self.hidden_size} is no multiple of twice {self.attention_heads}"
                " attention heads"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def size(self) -> str:
        """Of a picture, in OpenAI's writing."""
        return f"{self.image_size}x{self.image_size}"


def read_config(folder: Path) -> DiffusionConfig:
    """Of the model in `folder`. Raises ModelError that lists every fault."""
    path = folder / "config.json"
    raw = read_json(path)
    if (kind := raw.get("model_type")) != MODEL_TYPE:
        raise ModelError(str(path), [f"model_type is {kind!r}; only {MODEL_TYPE!r} is supported"])
    try:
        return DiffusionConfig.model_validate(raw)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
    told = [
        ": ".join([*map(str, fault["loc"]), fault["msg"].removeprefix("Value error, ")])
        for fault in faults
    ]
    raise ModelError(str(path), told)
