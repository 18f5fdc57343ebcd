"""How a decoder is cut over a mesh of devices: which axis of which parameter.

One table decides. Anything that does not divide is an error that names both numbers: a silently
replicated matrix would cost the memory the user declared a slice for.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike

from workloads.model.config import ModelConfig, ModelError
from workloads.model.lora import adapt
from workloads.model.qwen3 import FSDP, ROWS, TENSOR, Qwen3
from workloads.settings import LoraSettings, MeshSettings

# Module that owns the parameter: its axes. Matrices are (in, out). Column-parallel into the heads
# and the wide layer, row-parallel out of them: one all-reduce an attention, one a feed-forward.
# The other side, always the hidden size, is cut by fsdp. Norms are too small to be worth a fetch.
SPECS = {
    "embed_tokens": P(TENSOR, FSDP),
    "q_proj": P(FSDP, TENSOR),
    "k_proj": P(FSDP, TENSOR),
    "v_proj": P(FSDP, TENSOR),
    "o_proj": P(TENSOR, FSDP),
    "gate_proj": P(FSDP, TENSOR),
    "up_proj": P(FSDP, TENSOR),
    "down_proj": P(TENSOR, FSDP),
    "lm_head": P(FSDP, TENSOR),
    "input_layernorm": P(),
    "post_attention_layernorm": P(),
    "q_norm": P(),
    "k_norm": P(),
    "norm": P(),
}
LAYERS = "layers"
BATCH = P(ROWS)
CACHE = P(None, ROWS, None, TENSOR, None)  # of KeyValues, each


def make_mesh(settings: MeshSettings, devices: Sequence[Any] | None = None) -> Mesh:
    """A (data, fsdp, tensor) mesh over all devices, those of every host (the default).

    Within a TPU slice, JAX places the axes along the chips' own links. Elsewhere devices stay in
    process order, so the tensor axis, which talks most, stays within a host where it fits. Over
    several slices only the data axis crosses the slower network between them.

    Raises ValueError if the mesh and the devices differ in number.
    """
    devices = jax.devices() if devices is None else devices
    if len(devices) != settings.devices:
        raise ValueError(
            f"mesh {settings} needs {settings.devices} devices, but JAX sees {len(devices)}"
        )
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    names, sizes = tuple(settings.axes), tuple(settings.axes.values())
    axis_types = (AxisType.Auto,) * len(names)
    # An axis of the mesh may be a part of one of the slice: jax.make_mesh allows it on v5e alone,
    # and fails for data 4 x fsdp 4 x tensor 2 on a v6e 4x8.
    split = {"allow_split_physical_axes": True}
    if slices == 1:
        grid = mesh_utils.create_device_mesh(sizes, devices, **split)
        return Mesh(grid, names, axis_types=axis_types)
    if settings.data % slices:
        raise ValueError(f"mesh axis data {settings.data} is not a multiple of {slices} slices")
    grid = mesh_utils.create_hybrid_device_mesh(
        (settings.data // slices, *sizes[1:]),
        (slices, 1, 1),
        devices,
        **split,
    )
    return Mesh(grid, names, axis_types=axis_types)


def check(config: ModelConfig, mesh: Mesh) -> None:
    """Raises ModelError that lists every size the mesh does not cut into equal parts."""
    if faults := config.uneven(mesh.shape):
        raise ModelError("model", faults)


def spec(path: Sequence[Any]) -> P:
    """The partition of the parameter at `path`: the innermost module named in SPECS decides.

    Of the two matrices of an adapter each is cut as its one side of the module's own matrix is.
    A path may go on past the parameter or start before the model, as in an optimizer's state.
    The first axis of stacked layers is whole. Raises KeyError for a parameter the table does not
    know.
    """
    return P(None, *_of_one(path)) if is_stacked(path) else _of_one(path)


def _of_one(path: Sequence[Any]) -> P:
    for part in reversed(path):
        if part in SPECS:
            whole = SPECS[part]
            if "lora_a" in path:
                return P(whole[0], None)
            return P(None, whole[1]) if "lora_b" in path else whole
    raise KeyError(f"no partition is declared for parameter {'.'.join(map(str, path))}")


def is_stacked(path: Sequence[Any]) -> bool:
    """Whether it is of stacked layers: of layers by themselves it says which."""
    after = itertools.dropwhile(lambda part: part != LAYERS, path)
    return next(after, None) == LAYERS and not isinstance(next(after, 0), int)


def names(path: Iterable[Any]) -> list[Any]:
    """A path of JAX's as plain keys: names of dict entries and attributes, indices of lists."""
    return [getattr(key, "key", getattr(key, "name", getattr(key, "idx", None))) for key in path]


def abstract(
    config: ModelConfig,
    mesh: Mesh,
    dtype: DTypeLike,
    *,
    remat: bool = False,
    lora: LoraSettings | None = None,
    stacked: bool = False,
) -> tuple[Any, nnx.State]:
    """The model's graph, and its parameters as shapes with their shardings. Raises ModelError."""
    check(config, mesh)

    def create() -> Qwen3:
        how = {"dtype": dtype, "mesh": mesh, "remat": remat, "stacked": stacked}
        model = Qwen3(config, rngs=nnx.Rngs(0), **how)
        if lora is not None:
            adapt(model, lora, nnx.Rngs(0))
        return model

    graph, state = nnx.split(nnx.eval_shape(create))

    def placed(path: tuple[Any, ...], leaf: nnx.Variable) -> nnx.Variable:
        sharding = NamedSharding(mesh, spec(path))
        shape = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
        return leaf.replace(shape)

    return graph, nnx.map_state(placed, state)


def cast(shapes: Any, dtype: DTypeLike) -> Any:
    """A tree of shapes with shardings, as it is in another type."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=leaf.sharding), shapes
    )


def init_sharded(
    config: ModelConfig,
    mesh: Mesh,
    *,
    seed: int,
    dtype: DTypeLike = jnp.float32,
    stacked: bool = False,
) -> Qwen3:
    """A new model with float32 parameters, each made where it lives.

    No device or host ever holds the whole of it, and the same seed gives the same model on every
    mesh. `dtype` is that of activations. Every process of the mesh must call this. Raises
    ModelError if the mesh does not divide the model.
    """
    graph, state = abstract(config, mesh, dtype, stacked=stacked)

    def create() -> nnx.State:
        rngs = nnx.Rngs(seed)
        return nnx.split(Qwen3(config, rngs=rngs, dtype=dtype, mesh=mesh, stacked=stacked))[1]

    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    return nnx.merge(graph, jax.jit(create, out_shardings=shardings)())


def init_adapters(config: ModelConfig, placed: Any, lora: LoraSettings, *, seed: int) -> Any:
    """New adapters of stacked layers, as nested dicts by module name, placed as `placed` is."""

    def create() -> Any:
        model = Qwen3(config, rngs=nnx.Rngs(seed), stacked=True)
        adapt(model, lora, nnx.Rngs(seed))
        return nnx.to_pure_dict(nnx.state(model, nnx.LoRAParam))

    shardings = jax.tree.map(lambda leaf: leaf.sharding, placed)
    return jax.jit(create, out_shardings=shardings)()
