"""The state of a run: its shapes, their places, and where it comes from at the start."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from workloads.model import hf, sharding
from workloads.model.config import ModelConfig
from workloads.settings import TrainSettings


@dataclass(frozen=True)
class State:
    """What a step takes. Parameters are nested dicts by module name."""

    params: Any
    """What is trained. A step replaces it and the optimizer's state; a checkpoint holds both."""
    optimizer: Any
    frozen: Any = field(default_factory=dict)
    """What is not: with adapters, the model without them."""


def declare(
    settings: TrainSettings,
    config: ModelConfig,
    mesh: Mesh,
    optimizer: optax.GradientTransformation,
) -> tuple[Any, State]:
    """The model's graph, and the state as shapes with their shardings. Raises ModelError."""
    remat, lora = settings.remat == "layers", settings.lora
    how = {"remat": remat, "lora": lora, "stacked": True}
    graph, shapes = sharding.abstract(config, mesh, settings.dtype, **how)
    learned, still = shapes, nnx.State({})
    if lora is not None:
        learned, still = nnx.split_state(shapes, nnx.LoRAParam, ...)
    params = nnx.to_pure_dict(learned)
    # What no step changes needs no more figures than are computed with.
    frozen = sharding.cast(nnx.to_pure_dict(still), settings.dtype)
    moments = _placed(jax.eval_shape(optimizer.init, params), mesh)
    return graph, State(params, moments, frozen)


@dataclass(frozen=True)
class Start:
    """Makes the state at the start: from the checkpoint in `base`, or from random weights."""

    settings: TrainSettings
    config: ModelConfig
    mesh: Mesh
    optimizer: optax.GradientTransformation
    abstract: State
    base: Path | None

    def init(self) -> State:
        """Raises ModelError for what is wrong with the checkpoint."""
        lora, shapes = self.settings.lora, self.abstract.params
        if lora is None:
            fresh = self._weights(shapes)
        else:
            seed = self.settings.seed
            fresh = sharding.init_adapters(self.config, shapes, lora, seed=seed)
        placed = jax.tree.map(lambda leaf: leaf.sharding, self.abstract.optimizer)
        return State(
            fresh, jax.jit(self.optimizer.init, out_shardings=placed)(fresh), self.frozen()
        )

    def frozen(self) -> Any:
        """That part of the state alone, for a run that goes on: a checkpoint does not hold it."""
        return {} if self.settings.lora is None else self._weights(self.abstract.frozen)

    def _weights(self, shapes: Any) -> Any:
        """The model's own, in the places and the type of `shapes`."""
        if self.base is not None:
            return hf.read(self.base, shapes)
        model = sharding.init_sharded(self.config, self.mesh, seed=self.settings.seed, stacked=True)
        fresh = nnx.to_pure_dict(nnx.state(model))
        return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), fresh, shapes)


def _placed(shapes: Any, mesh: Mesh) -> Any:
    """The optimizer's state, cut as its parameters are; its counters are whole everywhere."""

    def placed(path: Sequence[Any], leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        spec = sharding.spec(sharding.names(path)) if leaf.ndim else P()
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree_util.tree_map_with_path(placed, shapes)
