"""A diffusion model's folder: written whole, and read straight onto the devices of a mesh.

Every device holds the whole model: what is shared out is the pictures.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike
from safetensors import SafetensorError
from safetensors.numpy import load_file

from workloads.model import hf
from workloads.model.config import ModelError
from workloads.serve.diffusion.config import DiffusionConfig, read_config
from workloads.serve.diffusion.model import Denoiser


def abstract(config: DiffusionConfig, dtype: DTypeLike) -> tuple[Any, nnx.State]:
    """The model's graph, and the shapes of its parameters in float32."""
    return nnx.split(nnx.eval_shape(lambda: Denoiser(config, rngs=nnx.Rngs(0), dtype=dtype)))


def new(config: DiffusionConfig, *, seed: int) -> Denoiser:
    """With random weights, in float32."""
    graph, _ = abstract(config, jnp.float32)
    # As one program: one by one, the weights of a small model take ten seconds.
    made = jax.jit(lambda: nnx.split(Denoiser(config, rngs=nnx.Rngs(seed)))[1])()
    return nnx.merge(graph, made)


def save(model: Denoiser, folder: Path, *, tokenizer_json: Path) -> None:
    """Write `model` and its tokenizer to `folder`, which is replaced if it exists."""
    flat = nnx.to_flat_state(nnx.state(model, nnx.Param))
    tensors = {_name(path): np.asarray(leaf[...]) for path, leaf in flat}
    documents = {"config.json": json.loads(model.config.model_dump_json())}
    with hf.replaced_whole(folder) as fresh:
        hf.write(fresh, documents, hf.WEIGHTS, tensors)
        shutil.copyfile(tokenizer_json, fresh / "tokenizer.json")


def load(folder: Path, mesh: Mesh, *, dtype: DTypeLike) -> Denoiser:
    """The model in `folder`, in `dtype`, whole on each device of `mesh`.

    Raises ModelError that lists every fault.
    """
    config = read_config(folder)
    graph, state = abstract(config, dtype)
    tensors = _read(folder / hf.WEIGHTS)
    wanted = {_name(path): tuple(leaf.shape) for path, leaf in nnx.to_flat_state(state)}
    if faults := list(_mismatches(wanted, tensors)):
        raise ModelError(str(folder / hf.WEIGHTS), faults)
    everywhere = NamedSharding(mesh, P())

    def placed(path: tuple[Any, ...], leaf: nnx.Variable) -> nnx.Variable:
        return leaf.replace(jax.device_put(tensors[_name(path)].astype(dtype), everywhere))

    return nnx.merge(graph, nnx.map_state(placed, state))


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _read(path: Path) -> Mapping[str, np.ndarray]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise ModelError(str(path), ["no such file; the weights are in it"]) from None
    except (SafetensorError, OSError) as error:
        raise ModelError(str(path), [f"is damaged or not safetensors ({error})"]) from None


def _mismatches(
    wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, np.ndarray]
) -> Iterator[str]:
    for name, shape in wanted.items():
        if name not in found:
            yield f"{name} is missing"
        elif found[name].shape != shape:
            yield f"{name} is {found[name].shape}, but config.json makes it {shape}"
        elif not jnp.issubdtype(found[name].dtype, jnp.floating):
            yield f"{name} is stored as {found[name].dtype}, which is no floating point"
    yield from (f"{name} is unexpected" for name in sorted(set(found) - set(wanted)))
