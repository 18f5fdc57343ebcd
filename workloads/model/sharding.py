"""How a decoder is cut over a mesh of devices: which axis of which parameter.

One table decides. Anything that does not divide is an error that names both numbers: a silently
replicated matrix would cost the memory the user declared a slice for.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike

from workloads.model.config import ModelConfig, ModelError
from workloads.model.qwen3 import FSDP, ROWS, TENSOR, Qwen3
from workloads.settings import MeshSettings

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
    if slices == 1:
        return jax.make_mesh(sizes, names, axis_types, devices=devices)
    if settings.data % slices:
        raise ValueError(f"mesh axis data {settings.data} is not a multiple of {slices} slices")
    grid = mesh_utils.create_hybrid_device_mesh(
        (settings.data // slices, *sizes[1:]),
        (slices, 1, 1),
        devices,
        allow_split_physical_axes=True,
    )
    return Mesh(grid, names, axis_types=axis_types)


def check(config: ModelConfig, mesh: Mesh) -> None:
    """Raises ModelError that lists every size the mesh does not cut into equal parts."""
    if faults := config.uneven(mesh.shape):
        raise ModelError("model", faults)


def spec(path: Sequence[Any]) -> P:
    """The partition of the parameter at `path`: the innermost module named in SPECS decides.

    A path may go on past the parameter or start before the model, as in an optimizer's state.
    Raises KeyError for a parameter the table does not know.
    """
    for part in reversed(path):
        if part in SPECS:
            return SPECS[part]
    raise KeyError(f"no partition is declared for parameter {'.'.join(map(str, path))}")


def abstract(
    config: ModelConfig, mesh: Mesh, dtype: DTypeLike, *, remat: bool = False
) -> tuple[Any, nnx.State]:
    """The model's graph, and its parameters as shapes with their shardings. Raises ModelError."""
    check(config, mesh)
    model = nnx.eval_shape(
        lambda: Qwen3(config, rngs=nnx.Rngs(0), dtype=dtype, mesh=mesh, remat=remat)
    )
    graph, state = nnx.split(model)

    def placed(path: tuple[Any, ...], leaf: nnx.Variable) -> nnx.Variable:
        sharding = NamedSharding(mesh, spec(path))
        shape = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
        return leaf.replace(shape)

    return graph, nnx.map_state(placed, state)


def init_sharded(
    config: ModelConfig, mesh: Mesh, *, seed: int, dtype: DTypeLike = jnp.float32
) -> Qwen3:
    """A new model with float32 parameters, each made where it lives.

    No device or host ever holds the whole of it, and the same seed gives the same model on every
    mesh. `dtype` is that of activations. Every process of the mesh must call this. Raises
    ModelError if the mesh does not divide the model.
    """
    graph, state = abstract(config, mesh, dtype)

    def create() -> nnx.State:
        return nnx.split(Qwen3(config, rngs=nnx.Rngs(seed), dtype=dtype, mesh=mesh))[1]

    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    return nnx.merge(graph, jax.jit(create, out_shardings=shardings)())
