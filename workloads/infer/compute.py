"""What a slice computes of one batch: completions, or likelihoods. Plain JAX: no Ray in here.

A batch is one program from its prompts to its last token, so that no host is asked between two
tokens. Every process of the mesh calls it with the same batch and gets all of its results.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from workloads.infer.plan import Batch
from workloads.model import sharding
from workloads.model.qwen3 import KeyValues, Qwen3
from workloads.serve.batch import choose
from workloads.settings import InferSettings


class Computer:
    """The model's compiled programs, one for each width of a batch."""

    def __init__(self, model: Qwen3, settings: InferSettings) -> None:
        graph, self._params = nnx.split(model)
        self._rows = NamedSharding(_mesh(model), sharding.BATCH)
        everywhere = NamedSharding(_mesh(model), P())

        def generate(params: nnx.State, *batch: jax.Array) -> tuple[jax.Array, jax.Array]:
            return _generate(nnx.merge(graph, params), settings, *batch)

        def score(params: nnx.State, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
            return _score(nnx.merge(graph, params), tokens, lengths)

        self._generate = jax.jit(generate, out_shardings=(everywhere, everywhere))
        self._score = jax.jit(score, out_shardings=everywhere)

    def generate(self, batch: Batch, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (batch_size, max_tokens), and how many of them each row made (batch_size,).

        The token that ended a text is one of them. `seeds` (batch_size,) uint32: a row's draws
        depend on its own alone.
        """
        tokens, counts = self._run(self._generate, batch.tokens, batch.lengths, batch.mask, seeds)
        return np.asarray(tokens), np.asarray(counts)

    def score(self, batch: Batch) -> np.ndarray:
        """(batch_size,): nats of each row's tokens after its first, given those before."""
        return np.asarray(self._run(self._score, batch.tokens, batch.lengths))

    def _run(self, program: Callable[..., Any], *arrays: np.ndarray) -> Any:
        placed = [
            jax.make_array_from_callback(array.shape, self._rows, array.__getitem__)
            for array in arrays
        ]
        return program(self._params, *placed)


class _State(NamedTuple):
    """Of the loop over tokens."""

    step: jax.Array
    """Tokens made so far."""
    cache: KeyValues
    made_bt: jax.Array
    counts_b: jax.Array
    going_b: jax.Array
    """Rows whose text has not ended. Padding never goes."""


def _generate(
    model: Qwen3,
    settings: InferSettings,
    tokens_bt: jax.Array,
    lengths_b: jax.Array,
    mask_b: jax.Array,
    seeds_b: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Tokens (b, max_tokens) and how many of each row count (b,)."""
    steps, rows = settings.max_tokens, lengths_b.shape[0]
    ends = jnp.array(sorted(model.config.eos_token_ids), jnp.int32)
    how = (jnp.full(rows, settings.temperature), jnp.full(rows, settings.top_p))

    def chosen(logits: jax.Array, positions_b: jax.Array) -> jax.Array:
        return choose(logits, seeds_b, positions_b, *how).astype(jnp.int32)

    def unfinished(state: _State) -> jax.Array:
        return (state.step < steps) & state.going_b.any()

    def one_more(state: _State) -> _State:
        step = state.step
        last_b = jax.lax.dynamic_index_in_dim(state.made_bt, step - 1, axis=1, keepdims=False)
        logits, cache = model.decode(last_b, lengths_b + step - 1, state.cache)
        next_b = chosen(logits, lengths_b + step)
        return _State(
            step=step + 1,
            cache=cache,
            made_bt=jax.lax.dynamic_update_index_in_dim(state.made_bt, next_b, step, axis=1),
            counts_b=state.counts_b + state.going_b,
            going_b=state.going_b & ~jnp.isin(next_b, ends),
        )

    logits, prefix = model.prefill(tokens_bt, lengths_b)
    first_b = chosen(logits, lengths_b)
    start = _State(
        step=jnp.int32(1),
        cache=_with_room(model, prefix, steps),
        made_bt=jnp.zeros((rows, steps), jnp.int32).at[:, 0].set(first_b),
        counts_b=jnp.ones_like(lengths_b),
        going_b=mask_b & ~jnp.isin(first_b, ends),
    )
    ended = jax.lax.while_loop(unfinished, one_more, start)
    return ended.made_bt, ended.counts_b


def _with_room(model: Qwen3, prefix: KeyValues, steps: int) -> KeyValues:
    """The prompts' keys and values, and as many places behind them."""
    room = ((0, 0), (0, 0), (0, steps), (0, 0), (0, 0))
    placed = NamedSharding(_mesh(model), sharding.CACHE)
    wider = (jnp.pad(part, room) for part in prefix)
    return KeyValues(*(jax.lax.with_sharding_constraint(part, placed) for part in wider))


def _mesh(model: Qwen3) -> Mesh:
    if model.mesh is None:
        raise ValueError("prompts are computed on a mesh, but this model was made without")
    return model.mesh


def _score(model: Qwen3, tokens_bt: jax.Array, lengths_b: jax.Array) -> jax.Array:
    """(b,): the sum of the log probabilities of tokens 1 to length - 1."""
    losses = optax.softmax_cross_entropy_with_integer_labels(
        model(tokens_bt[:, :-1]), tokens_bt[:, 1:]
    )
    real = jnp.arange(1, tokens_bt.shape[1]) < lengths_b[:, None]
    return -(losses * real).sum(axis=1)
