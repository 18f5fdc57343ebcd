"""One optimizer step, and one evaluation step, of a sharded decoder. Plain JAX: no Ray in here.

The state of a run is two trees: parameters, as nested dicts by module name, and the optimizer's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from workloads.model import sharding
from workloads.model.config import ModelConfig
from workloads.settings import TrainSettings

FINAL_LEARNING_RATE = 0.1
"""Of the peak: where the cosine decay ends."""
LOGITS_AT_ONCE = 256
"""Positions of each row. Logits of longer rows are computed in chunks, and anew in the backward
pass: in float32 and of a large vocabulary they would outweigh the model."""


@dataclass(frozen=True)
class State:
    """What a checkpoint holds, and what a step replaces."""

    params: Any
    optimizer: Any


@dataclass(frozen=True)
class Trainer:
    """The compiled functions of one run. Tokens are (b, t + 1): inputs and, one on, targets."""

    graph: Any
    schedule: optax.Schedule
    batch: NamedSharding
    """Where a batch's rows live: cut by data and fsdp, whole on the tensor axis."""
    init: Callable[[], State]
    abstract: State
    """The state as shapes with their shardings: what a checkpoint is read into."""
    train: Callable[[State, jax.Array], tuple[State, jax.Array]]
    """State and tokens to the next state and the mean loss in nats a token. Consumes its state.

    A row of negative tokens is padding, and counts for nothing."""
    lower: Callable[[int], jax.stages.Lowered]
    """The training step for rows of so many tokens, to be compiled and looked at: runs nothing."""
    evaluate: Callable[[State, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    """State, tokens and row weights (b,) to the sum of losses and the number of targets."""

    def model(self, state: State) -> nnx.Module:
        return nnx.merge(self.graph, nnx.State(state.params))


def make_trainer(settings: TrainSettings, config: ModelConfig, mesh: Mesh) -> Trainer:
    """Allocates nothing. Raises ModelError if the mesh does not divide the model."""
    graph, abstract, optimizer = _declare(settings, config, mesh)
    placement = jax.tree.map(lambda leaf: leaf.sharding, (abstract.params, abstract.optimizer))
    batch, whole = NamedSharding(mesh, sharding.BATCH), NamedSharding(mesh, P())

    def init() -> State:
        model = sharding.init_sharded(config, mesh, seed=settings.seed, dtype=settings.dtype)
        fresh = nnx.to_pure_dict(nnx.state(model))
        return State(fresh, jax.jit(optimizer.init, out_shardings=placement[1])(fresh))

    def mean_loss(params: Any, tokens: jax.Array) -> jax.Array:
        return _losses(nnx.merge(graph, nnx.State(params)), tokens).mean()

    def train(params: Any, state: Any, tokens: jax.Array) -> tuple[Any, Any, jax.Array]:
        parts = _parts(tokens, settings.gradient_accumulation_steps, mesh)
        loss, gradients = _mean_over(parts, jax.value_and_grad(mean_loss), params)
        if settings.ragged_batch == "pad":
            real = (tokens[:, 0] >= 0).mean()
            loss, gradients = jax.tree.map(lambda mean: mean / real, (loss, gradients))
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    def evaluate(params: Any, tokens: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        per_row = _losses(nnx.merge(graph, nnx.State(params)), tokens).sum(axis=1)
        return (per_row * weights).sum(), weights.sum() * (tokens.shape[1] - 1)

    trained = jax.jit(train, out_shardings=(*placement, whole), donate_argnums=(0, 1))
    evaluated = jax.jit(evaluate, out_shardings=(whole, whole))

    def step(state: State, tokens: jax.Array) -> tuple[State, jax.Array]:
        *trees, loss = trained(state.params, state.optimizer, tokens)
        return State(*trees), loss

    def lower(length: int) -> jax.stages.Lowered:
        shape = (settings.global_batch, length + 1)
        tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=batch)
        return trained.lower(abstract.params, abstract.optimizer, tokens)

    return Trainer(
        graph=graph,
        schedule=learning_rate(settings),
        batch=batch,
        init=init,
        abstract=abstract,
        train=step,
        lower=lower,
        evaluate=lambda state, tokens, weights: evaluated(state.params, tokens, weights),
    )


def _declare(
    settings: TrainSettings, config: ModelConfig, mesh: Mesh
) -> tuple[Any, State, optax.GradientTransformation]:
    """The model's graph, the state as shapes with their shardings, and the optimizer."""
    remat = settings.remat == "layers"
    graph, shapes = sharding.abstract(config, mesh, settings.dtype, remat=remat)
    optimizer = make_optimizer(settings, learning_rate(settings))
    params = nnx.to_pure_dict(shapes)
    return graph, State(params, _placed(jax.eval_shape(optimizer.init, params), mesh)), optimizer


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


def _mean_over(parts: jax.Array, gradients_of: Callable[..., Any], params: Any) -> Any:
    """The mean of `gradients_of(params, part)`, of which one part's activations exist at a time."""
    count = parts.shape[0]
    if count == 1:
        return gradients_of(params, parts[0])

    def add(total: Any, part: jax.Array) -> tuple[Any, None]:
        # Bound to the part, or XLA moves the fetching of all weights out of the loop and keeps them
        # whole, which fsdp is there to avoid.
        bound = jax.lax.optimization_barrier((params, part))
        return jax.tree.map(jnp.add, total, gradients_of(*bound)), None

    nothing = jax.tree.map(jnp.zeros_like, (jnp.zeros(()), params))
    total, _ = jax.lax.scan(add, nothing, parts)
    return jax.tree.map(lambda summed: summed / count, total)


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
            lambda path, _: _names(path)[-1] == "kernel", params
        )

    return optax.chain(
        optax.clip_by_global_norm(settings.gradient_clip),
        optax.adamw(schedule, b2=0.95, weight_decay=settings.weight_decay, mask=decays),
    )


def _placed(shapes: Any, mesh: Mesh) -> Any:
    """The optimizer's state, cut as its parameters are; its counters are whole everywhere."""

    def placed(path: Sequence[Any], leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        spec = sharding.spec(_names(path)) if leaf.ndim else P()
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree_util.tree_map_with_path(placed, shapes)


def _names(path: Sequence[Any]) -> list[Any]:
    """A path of JAX's as plain keys: names of dict entries and attributes, indices of lists."""
    return [getattr(key, "key", getattr(key, "name", getattr(key, "idx", None))) for key in path]
