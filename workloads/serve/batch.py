"""The rows that a slice decodes together: a KV cache on its devices and compiled programs.

`start` runs a prompt and puts its keys and values into one row; `step` adds one token to every
row. Shapes never change, so rows can start and end independently and nothing is compiled after
`warm_up`. What a row computes does not depend on the others. One thread owns a Batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from workloads.model import hf, sharding
from workloads.model.qwen3 import DATA, KeyValues, Qwen3
from workloads.serve import compiled
from workloads.serve.completion import Sampling
from workloads.settings import MeshSettings, ServeSettings

# Below this a prompt costs as much: reading the weights takes longer than using them.
SHORTEST_PREFILL = 64


def prefill_lengths(longest: int) -> tuple[int, ...]:
    """Lengths to which prompts are padded: doubling, so padding at most doubles the work."""
    lengths = []
    length = SHORTEST_PREFILL
    while length < longest:
        lengths.append(length)
        length *= 2
    return (*lengths, longest)


def choose(
    logits_bv: jax.Array,
    seeds_b: jax.Array,
    positions_b: jax.Array,
    temperature_b: jax.Array,
    top_p_b: jax.Array,
) -> jax.Array:
    """One token a row, for the sequence position given: it and the seed make the random key."""
    greedy_b = jnp.argmax(logits_bv, axis=-1)

    def drawn() -> jax.Array:
        scaled_bv = logits_bv / jnp.maximum(temperature_b, 1e-6)[:, None]
        keys_b = jax.vmap(lambda seed, at: jax.random.fold_in(jax.random.key(seed), at))(
            seeds_b, positions_b
        )
        return jax.vmap(jax.random.categorical)(keys_b, _nucleus(scaled_bv, top_p_b))

    # The sort is dear for a large vocabulary; a batch that is greedy throughout goes without.
    drawn_b = jax.lax.cond(jnp.any(temperature_b > 0), drawn, lambda: greedy_b)
    return jnp.where(temperature_b > 0, drawn_b, greedy_b)


def _nucleus(logits_bv: jax.Array, top_p_b: jax.Array) -> jax.Array:
    """Logits with all but the likeliest tokens that together reach top_p at minus infinity."""
    falling_bv = jnp.sort(logits_bv, axis=-1, descending=True)
    share_bv = jax.nn.softmax(falling_bv, axis=-1)
    before_bv = jnp.cumsum(share_bv, axis=-1) - share_bv
    kept_bv = jnp.where(before_bv < top_p_b[:, None], falling_bv, jnp.inf)
    # top_p below the first token's share still keeps the first token: nothing comes before it.
    return jnp.where(logits_bv >= kept_bv.min(axis=-1, keepdims=True), logits_bv, -jnp.inf)


@dataclass(frozen=True)
class Programs:
    """What a batch runs, each jitted and none compiled yet."""

    empty: Any
    """The cache."""
    start: Any
    """Parameters, cache, row, a padded prompt and its length to logits and the cache."""
    step: Any
    """Parameters, cache, and each row's token, position, seed, temperature and top_p to each row's
    next token and the cache."""
    choose: Any


def make_programs(model: Qwen3, *, rows: int, length: int) -> Programs:
    """For `rows` sequences of up to `length` tokens. The model's parameters may be mere shapes.

    Raises ValueError if the model has no mesh, or one that does not divide the rows.
    """
    mesh = model.mesh
    if mesh is None:
        raise ValueError("a model is served on a mesh, but this one was made without")
    if rows % mesh.shape[DATA]:
        raise ValueError(f"max_batch {rows} is not a multiple of mesh axis data {mesh.shape[DATA]}")
    graph, _ = nnx.split(model)

    def start(
        params: nnx.State,
        cache: KeyValues,
        row: jax.Array,
        tokens: jax.Array,
        size: jax.Array,
    ) -> tuple[jax.Array, KeyValues]:
        logits, prefix = nnx.merge(graph, params).prefill(tokens, size)
        return logits, cache.insert(row, prefix)

    def step(
        params: nnx.State,
        cache: KeyValues,
        tokens: jax.Array,
        positions: jax.Array,
        *how: jax.Array,
    ) -> tuple[jax.Array, KeyValues]:
        logits, cache = nnx.merge(graph, params).decode(tokens, positions, cache)
        return choose(logits, how[0], positions + 1, *how[1:]), cache

    everywhere, cached = NamedSharding(mesh, P()), NamedSharding(mesh, sharding.CACHE)
    places = (everywhere, cached)
    return Programs(
        empty=jax.jit(lambda: model.empty_cache(rows, length), out_shardings=cached),
        # The cache is most of the memory: each program writes into the one it was given.
        start=jax.jit(start, donate_argnums=1, out_shardings=places),
        step=jax.jit(step, donate_argnums=1, out_shardings=places),
        # Apart from the prompt's program, so that it is compiled once and not for each length.
        choose=jax.jit(choose, out_shardings=everywhere),
    )


class Batch:
    """`rows` sequences of up to `length` tokens each, on the model's mesh."""

    def __init__(self, model: Qwen3, *, rows: int, length: int) -> None:
        programs = make_programs(model, rows=rows, length=length)
        self.rows, self.length = rows, length
        self._prefill_lengths = prefill_lengths(length)
        self._params = nnx.split(model)[1]
        self._cache = programs.empty()
        self._start, self._step, self._choose = programs.start, programs.step, programs.choose

        self._tokens = np.zeros(rows, np.int32)
        self._positions = np.zeros(rows, np.int32)
        self._seeds = np.zeros(rows, np.uint32)
        self._temperature = np.zeros(rows, np.float32)
        self._top_p = np.ones(rows, np.float32)

    def warm_up(self) -> None:
        """Compile every program that will ever run, or find it where one was kept."""
        with compiled.told():
            for size in self._prefill_lengths:
                self.start(0, [0] * size, Sampling(max_tokens=1))
            self.step()

    def start(self, row: int, prompt: Sequence[int], sampling: Sampling) -> int:
        """Give `row` to a new sequence; returns its first token."""
        padded = next(size for size in self._prefill_lengths if size >= len(prompt))
        tokens = np.zeros((1, padded), np.int32)
        tokens[0, : len(prompt)] = prompt
        self._seeds[row] = sampling.seed & 0xFFFF_FFFF
        self._temperature[row], self._top_p[row] = sampling.temperature, sampling.top_p
        size = np.array([len(prompt)], np.int32)
        logits, self._cache = self._start(self._params, self._cache, np.int32(row), tokens, size)
        one = slice(row, row + 1)
        chosen = self._choose(
            logits, self._seeds[one], size, self._temperature[one], self._top_p[one]
        )
        token = int(np.asarray(chosen)[0])
        self._tokens[row], self._positions[row] = token, len(prompt)
        return token

    def step(self) -> list[int]:
        """The next token of every row, idle ones too (whose tokens mean nothing)."""
        tokens, self._cache = self._step(
            self._params,
            self._cache,
            self._tokens,
            self._positions,
            self._seeds,
            self._temperature,
            self._top_p,
        )
        self._tokens = np.array(tokens)
        # Idle rows go on to the end of the cache and stay there; a new start overwrites them.
        self._positions = np.minimum(self._positions + 1, self.length - 1)
        return self._tokens.tolist()


def load(folder: Path, settings: ServeSettings, axes: MeshSettings) -> Batch:
    """Of the model in `folder`, over every device that JAX sees. Raises ModelError."""
    compiled.keep()
    model = hf.load(folder, sharding.make_mesh(axes), dtype=jnp.dtype(settings.dtype))
    return Batch(model, rows=settings.max_batch, length=settings.max_sequence_length)
