"""One optimizer step, and one evaluation step, of a sharded decoder. Plain JAX: no Ray in here.

The state of a run is two trees: parameters, as nested dicts by module name, and the optimizer's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from workloads.model import sharding
from workloads.model.config import ModelConfig
from workloads.settings import TrainSettings

FINAL_LEARNING_RATE = 0.1
"""Of the peak: where the cosine decay ends."""


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
    """Where a batch's rows live: cut by the data axis, whole on the tensor axis."""
    init: Callable[[], State]
    abstract: State
    """The state as shapes with their shardings: what a checkpoint is read into."""
    train: Callable[[State, jax.Array], tuple[State, jax.Array]]
    """State and tokens to the next state and the mean loss in nats a token. Consumes its state."""
    evaluate: Callable[[State, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    """State, tokens and row weights (b,) to the sum of losses and the number of targets."""

    def model(self, state: State) -> nnx.Module:
        return nnx.merge(self.graph, nnx.State(state.params))


def make_trainer(settings: TrainSettings, config: ModelConfig, mesh: Mesh) -> Trainer:
    """Raises ModelError if the mesh does not divide the model."""
    graph, shapes = sharding.abstract(config, mesh, settings.dtype)
    schedule = learning_rate(settings)
    optimizer = make_optimizer(settings, schedule)
    params = nnx.to_pure_dict(shapes)
    abstract = State(params, _placed(jax.eval_shape(optimizer.init, params), mesh))
    placement = jax.tree.map(lambda leaf: leaf.sharding, abstract.optimizer)
    batch = NamedSharding(mesh, sharding.BATCH)

    def init() -> State:
        model = sharding.init_sharded(config, mesh, seed=settings.seed, dtype=settings.dtype)
        fresh = nnx.to_pure_dict(nnx.state(model))
        return State(fresh, jax.jit(optimizer.init, out_shardings=placement)(fresh))

    def losses(params: Any, tokens: jax.Array) -> jax.Array:
        model = nnx.merge(graph, nnx.State(params))
        logits = model(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])

    def train(params: Any, state: Any, tokens: jax.Array) -> tuple[Any, Any, jax.Array]:
        loss, gradients = jax.value_and_grad(lambda p: losses(p, tokens).mean())(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    def evaluate(params: Any, tokens: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        per_row = losses(params, tokens).sum(axis=1)
        return (per_row * weights).sum(), weights.sum() * (tokens.shape[1] - 1)

    layout = (jax.tree.map(lambda leaf: leaf.sharding, params), placement)
    compiled = jax.jit(
        train, out_shardings=(*layout, NamedSharding(mesh, P())), donate_argnums=(0, 1)
    )
    whole = NamedSharding(mesh, P())
    evaluated = jax.jit(evaluate, out_shardings=(whole, whole))

    def step(state: State, tokens: jax.Array) -> tuple[State, jax.Array]:
        *trees, loss = compiled(state.params, state.optimizer, tokens)
        return State(*trees), loss

    return Trainer(
        graph=graph,
        schedule=schedule,
        batch=batch,
        init=init,
        abstract=abstract,
        train=step,
        evaluate=lambda state, tokens, weights: evaluated(state.params, tokens, weights),
    )


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
