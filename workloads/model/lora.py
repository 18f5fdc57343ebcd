"""Low-rank adapters beside a decoder's projections, which stay as they are (arXiv 2106.09685).

A projection x W becomes x W + alpha / rank * x A B, with A (in, rank) and B (rank, out). B starts
at zero, so at first the model is the one it was; A starts as in Hugging Face's PEFT.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from workloads.model.qwen3 import Layer, Qwen3, stack
from workloads.settings import LoraSettings

# Uniform within 1 / sqrt(in): what PEFT's kaiming_uniform with a = sqrt(5) comes to.
_INITIAL_A = nnx.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


class Adapted(nnx.Linear):
    """A projection without bias, and its adapter: `lora_a` and `lora_b`, in float32."""

    def __init__(
        self, width_in: int, width_out: int, dtype: DTypeLike, lora: LoraSettings, rngs: nnx.Rngs
    ) -> None:
        super().__init__(width_in, width_out, use_bias=False, dtype=dtype, rngs=rngs)
        self.scale = lora.alpha / lora.rank
        initial = _INITIAL_A(rngs.params(), (width_in, lora.rank), jnp.float32)
        self.lora_a = nnx.LoRAParam(initial)
        self.lora_b = nnx.LoRAParam(jnp.zeros((lora.rank, width_out), jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride] # nnx.Linear's output sharding is of no use here
        x, a, b = self.promote_dtype((x, self.lora_a[...], self.lora_b[...]), dtype=self.dtype)
        return super().__call__(x) + self.scale * (x @ a @ b)


def adapt(model: Qwen3, lora: LoraSettings, rngs: nnx.Rngs) -> None:
    """Gives each of the model's targets an adapter. Their matrices are new ones."""
    for block in _blocks(model):
        for name in lora.targets:
            plain = getattr(block, name, None)
            if plain is not None:
                setattr(block, name, _adapted(plain, lora, rngs))


def _adapted(plain: Any, lora: LoraSettings, rngs: nnx.Rngs) -> Adapted:
    def make(rngs: nnx.Rngs) -> Adapted:
        return Adapted(plain.in_features, plain.out_features, plain.dtype, lora, rngs)

    *layers, _, _ = plain.kernel.shape
    return stack(make, layers[0], rngs) if layers else make(rngs)


def merge(model: Qwen3) -> None:
    """Adds each adapter to its matrix, in float32, and takes it away: a model as any other.

    Every process of the model's mesh must call this.
    """
    for block in _blocks(model):
        for name, adapted in list(vars(block).items()):
            if isinstance(adapted, Adapted):
                setattr(block, name, _merged(adapted))


def _merged(adapted: Adapted) -> nnx.Linear:
    kernel = adapted.kernel[...]
    added = jax.jit(_added, static_argnums=3, out_shardings=kernel.sharding)
    plain = nnx.eval_shape(
        lambda: nnx.Linear(
            *kernel.shape[-2:], use_bias=False, dtype=adapted.dtype, rngs=nnx.Rngs(0)
        )
    )
    plain.kernel = nnx.Param(added(kernel, adapted.lora_a[...], adapted.lora_b[...], adapted.scale))
    return plain


def _added(kernel: jax.Array, a: jax.Array, b: jax.Array, scale: float) -> jax.Array:
    return (kernel.astype(jnp.float32) + scale * (a @ b)).astype(kernel.dtype)


def _blocks(model: Qwen3) -> Iterator[nnx.Module]:
    layers = model.layers
    for layer in [layers] if isinstance(layers, Layer) else layers:
        yield layer.self_attn
        yield layer.mlp
