"""A diffusion transformer in Flax NNX: of a noisy picture, a step and a text, the noise.

Patches are tokens that attend to each other and to the text, and are scaled and shifted by the step
they have come to (arXiv 2212.09748). Axis letters in names: b batch, t patches, s text tokens,
d hidden, n heads, h of one head.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from workloads.serve.diffusion.config import DiffusionConfig

CHANNELS = 3
WIDENING = 4  # of the feed-forward, as in the transformer's first paper
LONGEST_PERIOD = 10_000.0  # in steps


class Attention(nnx.Module):
    def __init__(self, config: DiffusionConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        d = config.hidden_size
        self.heads = config.attention_heads
        self.q_proj = nnx.Linear(d, d, dtype=dtype, rngs=rngs)
        self.k_proj = nnx.Linear(d, d, dtype=dtype, rngs=rngs)
        self.v_proj = nnx.Linear(d, d, dtype=dtype, rngs=rngs)
        self.o_proj = nnx.Linear(d, d, dtype=dtype, rngs=rngs)

    def __call__(self, x_btd: jax.Array, to_bsd: jax.Array, mask_bs: jax.Array) -> jax.Array:
        q, k, v = self.q_proj(x_btd), self.k_proj(to_bsd), self.v_proj(to_bsd)
        split = [one.reshape(*one.shape[:2], self.heads, -1) for one in (q, k, v)]
        out = jax.nn.dot_product_attention(*split, mask=mask_bs[:, None, None])
        return self.o_proj(out.reshape(x_btd.shape))


class FeedForward(nnx.Module):
    def __init__(self, config: DiffusionConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        d = config.hidden_size
        self.up_proj = nnx.Linear(d, WIDENING * d, dtype=dtype, rngs=rngs)
        self.down_proj = nnx.Linear(WIDENING * d, d, dtype=dtype, rngs=rngs)

    def __call__(self, x_btd: jax.Array) -> jax.Array:
        return self.down_proj(nnx.gelu(self.up_proj(x_btd)))


class TextLayer(nnx.Module):
    def __init__(self, config: DiffusionConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.attention_norm = nnx.LayerNorm(config.hidden_size, dtype=dtype, rngs=rngs)
        self.attention = Attention(config, dtype, rngs)
        self.mlp_norm = nnx.LayerNorm(config.hidden_size, dtype=dtype, rngs=rngs)
        self.mlp = FeedForward(config, dtype, rngs)

    def __call__(self, x_bsd: jax.Array, mask_bs: jax.Array) -> jax.Array:
        normed = self.attention_norm(x_bsd)
        x_bsd = x_bsd + self.attention(normed, normed, mask_bs)
        return x_bsd + self.mlp(self.mlp_norm(x_bsd))


class PatchLayer(nnx.Module):
    def __init__(self, config: DiffusionConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        d = config.hidden_size
        self.attention_norm = nnx.LayerNorm(d, dtype=dtype, rngs=rngs)
        self.attention = Attention(config, dtype, rngs)
        self.text_norm = nnx.LayerNorm(d, dtype=dtype, rngs=rngs)
        self.text_attention = Attention(config, dtype, rngs)
        self.mlp_norm = nnx.LayerNorm(d, dtype=dtype, rngs=rngs)
        self.mlp = FeedForward(config, dtype, rngs)
        self.modulation = nnx.Linear(d, 6 * d, dtype=dtype, rngs=rngs)

    def __call__(
        self, x_btd: jax.Array, step_bd: jax.Array, text_bsd: jax.Array, mask_bs: jax.Array
    ) -> jax.Array:
        changes = jnp.split(self.modulation(nnx.silu(step_bd))[:, None], 6, axis=-1)
        scale, shift, gate, mlp_scale, mlp_shift, mlp_gate = changes
        everywhere = jnp.ones(x_btd.shape[:2], bool)
        normed = self.attention_norm(x_btd) * (1 + scale) + shift
        x_btd = x_btd + gate * self.attention(normed, normed, everywhere)
        x_btd = x_btd + self.text_attention(self.text_norm(x_btd), text_bsd, mask_bs)
        return x_btd + mlp_gate * self.mlp(self.mlp_norm(x_btd) * (1 + mlp_scale) + mlp_shift)


class Denoiser(nnx.Module):
    """`dtype` is that of activations and matrix products; parameters start in float32."""

    def __init__(
        self, config: DiffusionConfig, *, rngs: nnx.Rngs, dtype: DTypeLike = jnp.float32
    ) -> None:
        d, side = config.hidden_size, config.image_size // config.patch_size
        patch = config.patch_size**2 * CHANNELS
        self.config = config
        self.embed_tokens = nnx.Embed(config.vocab_size, d, dtype=dtype, rngs=rngs)
        # One place more than a prompt has tokens: before them all, and so there without any.
        self.text_places = nnx.Embed(1 + config.text_length, d, dtype=dtype, rngs=rngs)
        text_layers = range(config.text_layers)
        self.text_layers = nnx.List([TextLayer(config, dtype, rngs) for _ in text_layers])
        self.text_norm = nnx.LayerNorm(d, dtype=dtype, rngs=rngs)
        self.step_in = nnx.Linear(d, d, dtype=dtype, rngs=rngs)
        self.step_out = nnx.Linear(d, d, dtype=dtype, rngs=rngs)
        self.patch_in = nnx.Linear(patch, d, dtype=dtype, rngs=rngs)
        self.patch_places = nnx.Embed(side**2, d, dtype=dtype, rngs=rngs)
        self.layers = nnx.List([PatchLayer(config, dtype, rngs) for _ in range(config.layers)])
        self.norm = nnx.LayerNorm(d, dtype=dtype, rngs=rngs)
        self.patch_out = nnx.Linear(d, patch, dtype=dtype, rngs=rngs)

    def read(self, tokens_bs: jax.Array, sizes_b: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The text (b, 1 + text_length, d) of padded prompts, and which of it counts."""
        count = 1 + self.config.text_length
        words = jnp.pad(self.embed_tokens(tokens_bs), ((0, 0), (1, 0), (0, 0)))
        x_bsd = words + self.text_places(jnp.arange(count))
        mask_bs = jnp.arange(count) <= sizes_b[:, None]
        for layer in self.text_layers:
            x_bsd = layer(x_bsd, mask_bs)
        return self.text_norm(x_bsd), mask_bs

    def __call__(
        self, x_bhwc: jax.Array, steps_b: jax.Array, text_bsd: jax.Array, mask_bs: jax.Array
    ) -> jax.Array:
        """The noise in pictures that have come to these steps."""
        step_bd = self.step_out(nnx.silu(self.step_in(self._waves(steps_b))))
        patches = self.patch_in(cut(x_bhwc, self.config.patch_size))
        x_btd = patches + self.patch_places(jnp.arange(patches.shape[1]))
        for layer in self.layers:
            x_btd = layer(x_btd, step_bd, text_bsd, mask_bs)
        return join(self.patch_out(self.norm(x_btd)), self.config.patch_size)

    def _waves(self, steps_b: jax.Array) -> jax.Array:
        half = self.config.hidden_size // 2
        frequency = LONGEST_PERIOD ** (-jnp.arange(half, dtype=jnp.float32) / half)
        angle = steps_b[:, None].astype(jnp.float32) * frequency
        return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def cut(x_bhwc: jax.Array, size: int) -> jax.Array:
    """Patches (b, t, size * size * channels) of pictures, line by line."""
    b, height, width, channels = x_bhwc.shape
    parts = x_bhwc.reshape(b, height // size, size, width // size, size, channels)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(b, -1, size * size * channels)


def join(patches_btp: jax.Array, size: int) -> jax.Array:
    """The square pictures that `cut` made these patches of."""
    b, t, _ = patches_btp.shape
    side = math.isqrt(t)
    parts = patches_btp.reshape(b, side, side, size, size, -1).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(b, side * size, side * size, -1)
