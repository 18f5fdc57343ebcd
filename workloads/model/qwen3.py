"""A decoder with the Qwen3 architecture in Flax NNX, equal in numbers to `Qwen3ForCausalLM`.

Module and parameter names are Hugging Face's, so a checkpoint maps one to one; matrices are kept
as (in, out), the transpose of torch's. Axis letters in names: b batch, t query tokens, s key
tokens, d hidden, n attention heads, k key-value heads, h head_dim, v vocabulary.

Three ways through the same layers: a whole sequence (training), a prompt (`prefill`, which also
returns its keys and values) and one token a row (`decode`, with a cache of fixed length, each row
at its own position).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike

from workloads.model.config import ModelConfig

DATA, FSDP, TENSOR = "data", "fsdp", "tensor"  # mesh axes
ROWS = (DATA, FSDP)
"""What cuts a batch: each of these devices computes rows of its own."""
Integers = jax.Array | np.ndarray
Made = TypeVar("Made", bound=nnx.Module)


class KeyValues(NamedTuple):
    """Keys and values of every layer: (layers, b, s, k, h), keys already rotated."""

    keys: jax.Array
    values: jax.Array

    def insert(self, row: jax.Array | int, prefix: "KeyValues") -> "KeyValues":
        """This cache with a prompt's keys and values (b = 1) at the start of one row."""
        start = (0, row, 0, 0, 0)
        return KeyValues(
            jax.lax.dynamic_update_slice(self.keys, prefix.keys.astype(self.keys.dtype), start),
            jax.lax.dynamic_update_slice(
                self.values, prefix.values.astype(self.values.dtype), start
            ),
        )


def rotate(x_btnh: jax.Array, positions_bt: jax.Array, theta: float) -> jax.Array:
    """Rotary position embedding, rotate-half form: pair i is (x[i], x[i + h/2])."""
    half = x_btnh.shape[-1] // 2
    # float32 throughout: bfloat16 cannot tell position 257 from 258.
    frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions_bt[:, :, None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = jnp.split(x_btnh.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x_btnh.dtype)


class Attention(nnx.Module):
    """Grouped-query attention with an RMSNorm over each head's query and key (QK-norm)."""

    def __init__(self, config: ModelConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.config = config
        width = config.attention_heads * config.head_dim
        key_value_width = config.key_value_heads * config.head_dim
        self.q_proj = _linear(config.hidden_size, width, dtype, rngs)
        self.k_proj = _linear(config.hidden_size, key_value_width, dtype, rngs)
        self.v_proj = _linear(config.hidden_size, key_value_width, dtype, rngs)
        self.o_proj = _linear(width, config.hidden_size, dtype, rngs, residual_of=config)
        self.q_norm = _norm(config.head_dim, config, dtype, rngs)
        self.k_norm = _norm(config.head_dim, config, dtype, rngs)

    def project(
        self, x_btd: jax.Array, positions_bt: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries (b,t,n,h), keys and values (b,t,k,h); queries and keys rotated."""
        shape = (*x_btd.shape[:2], -1, self.config.head_dim)
        q = self.q_norm(self.q_proj(x_btd).reshape(shape))
        k = self.k_norm(self.k_proj(x_btd).reshape(shape))
        theta = self.config.rope_theta
        v = self.v_proj(x_btd).reshape(shape)
        return rotate(q, positions_bt, theta), rotate(k, positions_bt, theta), v

    def attend(self, q: jax.Array, k: jax.Array, v: jax.Array, mask_bts: jax.Array) -> jax.Array:
        # A backward pass computes the scores anew: kept, they outweigh all else of a long row.
        attention = jax.checkpoint(jax.nn.dot_product_attention, prevent_cse=False)
        out = attention(q, k, v, mask=mask_bts[:, None])
        return self.o_proj(out.reshape(*out.shape[:2], -1))


class FeedForward(nnx.Module):
    """SwiGLU."""

    def __init__(self, config: ModelConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        hidden, wide = config.hidden_size, config.intermediate_size
        self.gate_proj = _linear(hidden, wide, dtype, rngs)
        self.up_proj = _linear(hidden, wide, dtype, rngs)
        self.down_proj = _linear(wide, hidden, dtype, rngs, residual_of=config)

    def __call__(self, x_btd: jax.Array) -> jax.Array:
        return self.down_proj(nnx.silu(self.gate_proj(x_btd)) * self.up_proj(x_btd))


class Layer(nnx.Module):
    def __init__(self, config: ModelConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.input_layernorm = _norm(config.hidden_size, config, dtype, rngs)
        self.self_attn = Attention(config, dtype, rngs)
        self.post_attention_layernorm = _norm(config.hidden_size, config, dtype, rngs)
        self.mlp = FeedForward(config, dtype, rngs)

    def __call__(self, x_btd: jax.Array, positions_bt: jax.Array, mask_bts: jax.Array) -> jax.Array:
        """The layer's output for whole sequences."""
        return self.finish(x_btd, *self.project(x_btd, positions_bt), mask_bts)

    def project(
        self, x_btd: jax.Array, positions_bt: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        return self.self_attn.project(self.input_layernorm(x_btd), positions_bt)

    def finish(
        self, x_btd: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array, mask_bts: jax.Array
    ) -> jax.Array:
        """The layer's output, given what to attend to: new keys and values, or a cache's."""
        x_btd = x_btd + self.self_attn.attend(q, k, v, mask_bts)
        return x_btd + self.mlp(self.post_attention_layernorm(x_btd))


class Qwen3(nnx.Module):
    """The decoder: tokens to the logits of the token that follows.

    `dtype` is that of activations and matrix products; parameters start in float32, and softmax
    and logits are float32 always.
    `mesh` pins the batch to the data axis between layers; without one nothing is pinned.

    With `stacked`, `layers` is one whose parameters are those of all, along a first axis: a loop
    that is compiled once, where layers by themselves are compiled one by one, for minutes in a
    deep model. Training has them so. A server, whose steps are short and whose cache is large,
    does not: `prefill` and `decode` are for layers by themselves.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        rngs: nnx.Rngs,
        dtype: DTypeLike = jnp.float32,
        mesh: Mesh | None = None,
        remat: bool = False,
        stacked: bool = False,
    ) -> None:
        """With `remat`, a backward pass keeps each layer's input and computes the rest anew."""
        self.remat = remat
        self.config, self.mesh, self.dtype = config, mesh, jnp.dtype(dtype)
        self.embed_tokens = nnx.Embed(
            config.vocab_size,
            config.hidden_size,
            dtype=dtype,
            embedding_init=nnx.initializers.normal(0.02),
            rngs=rngs,
        )
        if stacked:
            self.layers = stack(lambda rngs: Layer(config, dtype, rngs), config.layers, rngs)
        else:
            self.layers = nnx.List([Layer(config, dtype, rngs) for _ in range(config.layers)])
        self.norm = _norm(config.hidden_size, config, dtype, rngs)
        if not config.tie_word_embeddings:
            self.lm_head = _linear(config.hidden_size, config.vocab_size, dtype, rngs)

    def __call__(self, tokens_bt: Integers, segments_bt: Integers | None = None) -> jax.Array:
        """Logits (b,t,v) in float32 for the token after each one; see `hidden`."""
        return self._pin(self.logits(self.hidden(tokens_bt, segments_bt)), ROWS, None, TENSOR)

    def hidden(self, tokens_bt: Integers, segments_bt: Integers | None = None) -> jax.Array:
        """What the layers make of each token, (b,t,d): all but the logits.

        `segments_bt` numbers the documents packed into a row: a token then sees only its own.
        Positions need no restart, for rotary attention depends on distance alone.
        """
        tokens_bt = jnp.asarray(tokens_bt)
        mask = _causal(tokens_bt.shape[1])
        if segments_bt is not None:
            mask = mask & (segments_bt[:, :, None] == segments_bt[:, None, :])
        x, positions = self._embed(tokens_bt), _positions(tokens_bt)

        def through(x: jax.Array, layer: Layer) -> jax.Array:
            return self._pin(layer(x, positions, mask), ROWS)

        if not isinstance(self.layers, Layer):
            for layer in self.layers:
                x = (nnx.remat(through) if self.remat else through)(x, layer)
            return x
        graph, parameters = nnx.split(self.layers)

        def one(x: jax.Array, own: nnx.State) -> tuple[jax.Array, None]:
            return through(x, nnx.merge(graph, own)), None

        if self.remat:
            # A loop needs no barrier against what XLA might keep after all.
            one = jax.checkpoint(one, prevent_cse=False)
        return jax.lax.scan(one, x, parameters)[0]

    def prefill(self, tokens_bt: Integers, lengths_b: Integers) -> tuple[jax.Array, KeyValues]:
        """Logits (b,v) after each row's last real token, and the keys and values of all t tokens.

        Rows are padded on the right; what the padding wrote lies behind each row's length, where
        decoding overwrites it before it is ever attended to.
        """
        tokens_bt = jnp.asarray(tokens_bt)
        mask, positions = _causal(tokens_bt.shape[1]), _positions(tokens_bt)
        x, keys, values = self.embed_tokens(tokens_bt), [], []
        for layer in self.separate_layers():
            q, k, v = layer.project(x, positions)
            x = layer.finish(x, q, k, v, mask)
            keys.append(k)
            values.append(v)
        last = jnp.take_along_axis(x, (lengths_b - 1)[:, None, None], axis=1)
        return self.logits(last)[:, 0], KeyValues(jnp.stack(keys), jnp.stack(values))

    def decode(
        self, tokens_b: Integers, positions_b: Integers, cache: KeyValues
    ) -> tuple[jax.Array, KeyValues]:
        """Logits (b,v) after one more token a row, and the cache with that token in it."""
        tokens_b, positions_b = jnp.asarray(tokens_b), jnp.asarray(positions_b)
        rows = jnp.arange(tokens_b.shape[0])
        mask = (jnp.arange(cache.keys.shape[2]) <= positions_b[:, None])[:, None]
        x = self._embed(tokens_b[:, None])
        for index, layer in enumerate(self.separate_layers()):
            q, k, v = layer.project(x, positions_b[:, None])
            cache = KeyValues(
                cache.keys.at[index, rows, positions_b].set(k[:, 0]),
                cache.values.at[index, rows, positions_b].set(v[:, 0]),
            )
            x = layer.finish(x, q, cache.keys[index], cache.values[index], mask)
            x = self._pin(x, ROWS)
        return self.logits(x)[:, 0], cache

    def separate_layers(self) -> Iterable[Layer]:
        """Raises TypeError for stacked ones."""
        if isinstance(self.layers, Layer):
            raise TypeError("stacked layers have no cache: export the model and load it")
        return self.layers

    def empty_cache(self, rows: int, length: int) -> KeyValues:
        """Zeros for `rows` sequences of up to `length` tokens."""
        config = self.config
        shape = (config.layers, rows, length, config.key_value_heads, config.head_dim)
        return KeyValues(jnp.zeros(shape, self.dtype), jnp.zeros(shape, self.dtype))

    def _embed(self, tokens_bt: jax.Array) -> jax.Array:
        # Its parts are fetched first, as those of other matrices are: looked up in a table that
        # fsdp cuts, every row would be computed on every device.
        table = self._pin(self.embed_tokens.embedding[...].astype(self.dtype), TENSOR, None)
        return self._pin(jnp.take(table, tokens_bt, axis=0), ROWS)

    def logits(self, x: jax.Array) -> jax.Array:
        """(...,d) to (...,v), in float32."""
        x = self.norm(x)
        if self.config.tie_word_embeddings:
            weight_dv = self.embed_tokens.embedding[...].T
        else:
            weight_dv = self.lm_head.kernel[...]
        return jnp.einsum(
            "...d,dv->...v",
            x,
            weight_dv.astype(self.dtype),
            preferred_element_type=jnp.float32,
        )

    def _pin(self, x: jax.Array, *axes: str | tuple[str, ...] | None) -> jax.Array:
        if self.mesh is None:
            return x
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*axes)))


def stack(make: Callable[[nnx.Rngs], Made], count: int, rngs: nnx.Rngs) -> Made:
    """So many modules as one, each parameter with a first axis for them."""
    return nnx.vmap(make, in_axes=0, out_axes=0)(rngs.split(count))


def _linear(
    width_in: int,
    width_out: int,
    dtype: DTypeLike,
    rngs: nnx.Rngs,
    *,
    residual_of: ModelConfig | None = None,
) -> nnx.Linear:
    """A projection without bias.

    One that ends in the residual stream starts smaller, so that the stream's variance at the
    start does not grow with depth (two such projections a layer).
    """
    scale = 1.0 if residual_of is None else 1 / (2 * residual_of.layers)
    initial = nnx.initializers.variance_scaling(scale, "fan_in", "normal")
    return nnx.Linear(
        width_in, width_out, use_bias=False, dtype=dtype, kernel_init=initial, rngs=rngs
    )


def _norm(width: int, config: ModelConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.RMSNorm:
    return nnx.RMSNorm(width, epsilon=config.rms_norm_epsilon, dtype=dtype, rngs=rngs)


def _positions(tokens_bt: jax.Array) -> jax.Array:
    return jnp.broadcast_to(jnp.arange(tokens_bt.shape[1]), tokens_bt.shape)


def _causal(length: int) -> jax.Array:
    return jnp.tril(jnp.ones((1, length, length), dtype=bool))
