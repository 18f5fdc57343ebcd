"""One optimizer step, and one evaluation step, of a sharded decoder. Plain JAX: no Ray in here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from workloads.model import sharding
from workloads.model.config import ModelConfig
from workloads.model.qwen3 import Qwen3
from workloads.settings import TrainSettings
from workloads.train.state import Start, State, declare

FINAL_LEARNING_RATE = 0.1
"""Of the peak: where the cosine decay ends."""
LOGITS_AT_ONCE = 256
"""Positions of each row. Logits of longer rows are computed in chunks, and anew in the backward
pass: in float32 and of a large vocabulary they would outweigh the model."""
DECAYING = {"kernel", "lora_a", "lora_b"}


@dataclass(frozen=True)
class Trainer:
    """The compiled functions of one run. Tokens are (b, t + 1): inputs and, one on, targets."""

    graph: Any
    schedule: optax.Schedule
    batch: NamedSharding
    """Where a batch's rows live: cut by data and fsdp, whole on the tensor axis."""
    start: Start
    train: Callable[[State, jax.Array], tuple[State, jax.Array]]
    """State and tokens to the next state and the mean loss in nats a token. Consumes its state.

    A row of negative tokens is padding, and counts for nothing."""
    lower: Callable[[int], jax.stages.Lowered]
    """The training step for rows of so many tokens, to be compiled and looked at: runs nothing."""
    evaluate: Callable[[State, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    """State, tokens and row weights (b,) to the sum of losses and the number of targets."""

    @property
    def abstract(self) -> State:
        """The state as shapes with their shardings: what a checkpoint is read into."""
        return self.start.abstract

    def init(self) -> State:
        return self.start.init()

    def model(self, state: State) -> Qwen3:
        return _model(self.graph, state.params, state.frozen)


def make_trainer(
    settings: TrainSettings, config: ModelConfig, mesh: Mesh, base: Path | None = None
) -> Trainer:
    """Allocates nothing. Training starts from the checkpoint in `base`, or from random weights.

    Raises ModelError if the mesh does not divide the model.
    """
    optimizer = make_optimizer(settings, learning_rate(settings))
    graph, abstract = declare(settings, config, mesh, optimizer)
    start = Start(settings, config, mesh, optimizer, abstract, base)
    placement = jax.tree.map(lambda leaf: leaf.sharding, (abstract.params, abstract.optimizer))
    batch, whole = NamedSharding(mesh, sharding.BATCH), NamedSharding(mesh, P())

    def mean_loss(params: Any, frozen: Any, tokens: jax.Array) -> jax.Array:
        return _losses(_model(graph, params, frozen), tokens).mean()

    def train(params: Any, state: Any, frozen: Any, tokens: jax.Array) -> tuple[Any, ...]:
        parts = _parts(tokens, settings.gradient_accumulation_steps, mesh)
        means = _mean_over(parts, jax.value_and_grad(mean_loss), params, frozen)
        if settings.ragged_batch == "pad":
            means = _without_padding(means, tokens)
        loss, gradients = means
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    def evaluate(params: Any, frozen: Any, tokens: jax.Array, weights: jax.Array) -> Any:
        per_row = _losses(_model(graph, params, frozen), tokens).sum(axis=1)
        return (per_row * weights).sum(), weights.sum() * (tokens.shape[1] - 1)

    trained = jax.jit(train, out_shardings=(*placement, whole), donate_argnums=(0, 1))
    evaluated = jax.jit(evaluate, out_shardings=(whole, whole))

    def step(state: State, tokens: jax.Array) -> tuple[State, jax.Array]:
        params, optimizer, loss = trained(state.params, state.optimizer, state.frozen, tokens)
        return State(params, optimizer, state.frozen), loss

    def lower(length: int) -> jax.stages.Lowered:
        shape = (settings.global_batch, length + 1)
        tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=batch)
        return trained.lower(abstract.params, abstract.optimizer, abstract.frozen, tokens)

    return Trainer(
        graph=graph,
        schedule=learning_rate(settings),
        batch=batch,
        start=start,
        train=step,
        lower=lower,
        evaluate=lambda state, rows, weights: evaluated(state.params, state.frozen, rows, weights),
    )


def _model(graph: Any, params: Any, frozen: Any) -> Qwen3:
    return nnx.merge(graph, nnx.State(params), nnx.State(frozen))


def _losses(model: Any, tokens: jax.Array) -> jax.Array:
    """Nats of each target, (b,t), in float32; none where a row is padding."""

    def nats(hidden: jax.Array, targets: jax.Array) -> jax.Array:
        labels = jnp.maximum(targets, 0)
        losses = optax.softmax_cross_entropy_with_integer_labels(model.logits(hidden), labels)
        return jnp.where(targets >= 0, losses, 0)

    hidden_btd, targets_bt = model.hidden(jnp.maximum(tokens[:, :-1], 0)), tokens[:, 1:]
    if targets_bt.shape[1] <= LOGITS_AT_ONCE:
        return nats(hidden_btd, targets_bt)
    by_position = (jnp.swapaxes(hidden_btd, 0, 1), jnp.swapaxes(targets_bt, 0, 1))
    chunked = jax.lax.map(
        lambda position: jax.checkpoint(nats)(*position), by_position, batch_size=LOGITS_AT_ONCE
    )
    return jnp.swapaxes(chunked, 0, 1)


def _parts(tokens: jax.Array, count: int, mesh: Mesh) -> jax.Array:
    """(count, b / count, t + 1), each part with rows of every device, so that no row moves."""
    parted = jnp.swapaxes(tokens.reshape(-1, count, tokens.shape[1]), 0, 1)
    return jax.lax.with_sharding_constraint(parted, NamedSharding(mesh, P(None, *sharding.BATCH)))


def _mean_over(parts: jax.Array, gradients_of: Callable[..., Any], params: Any, frozen: Any) -> Any:
    """The mean of the parts' loss and gradients; one part's activations exist at a time."""
    count = parts.shape[0]
    if count == 1:
        return gradients_of(params, frozen, parts[0])

    def add(total: Any, part: jax.Array) -> tuple[Any, None]:
        # Bound to the part, or XLA moves the fetching of all weights out of the loop and keeps them
        # whole, which fsdp is there to avoid.
        bound = jax.lax.optimization_barrier((params, frozen, part))
        return jax.tree.map(jnp.add, total, gradients_of(*bound)), None

    nothing = jax.tree.map(jnp.zeros_like, (jnp.zeros(()), params))
    total, _ = jax.lax.scan(add, nothing, parts)
    return jax.tree.map(lambda summed: summed / count, total)


def _without_padding(means: Any, tokens: jax.Array) -> Any:
    """Means over all rows, padding with its zeros among them, as those over the others."""
    real = (tokens[:, 0] >= 0).mean()
    return jax.tree.map(lambda mean: mean / real, means)


def learning_rate(settings: TrainSettings) -> optax.Schedule:
    """Linear warm-up to the peak, then a cosine to a tenth of it at the last step."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        decay_steps=settings.steps,
        end_value=settings.learning_rate * FINAL_LEARNING_RATE,
    )


def make_optimizer(
    settings: TrainSettings, schedule: optax.Schedule
) -> optax.GradientTransformation:
    """AdamW on gradients clipped to a global norm. Norms and embeddings do not decay."""

    def decays(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: sharding.names(path)[-1] in DECAYING, params
        )

    return optax.chain(
        optax.clip_by_global_norm(settings.gradient_clip),
        optax.adamw(schedule, b2=0.95, weight_decay=settings.weight_decay, mask=decays),
    )
