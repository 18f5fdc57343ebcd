"""A decoder's files in the Hugging Face layout of Qwen3: written for, and read from, any server.

`export` writes a folder that appears whole or not at all. `load` reads ours or any other Qwen3
checkpoint, one file or many; each device is given its own part straight from the file, so no host
holds the model a second time.
"""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jax.typing import DTypeLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from workloads.model import sharding
from workloads.model.config import ModelConfig, ModelError, read_config, read_json
from workloads.model.qwen3 import Qwen3

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = ("BF16", "F16", "F32", "F64")
HEAD = "lm_head.weight"
TALK = (
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
"""Files that say how a model is talked to: which tokens end a turn, and how messages are put."""
# Qwen's own message format, ChatML.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CHAT_TOKENS = ("<|im_start|>", "<|im_end|>")


def tensor_name(path: tuple[Any, ...]) -> str:
    """Hugging Face's name of the parameter at `path`."""
    *owner, _ = path
    name = ".".join([*map(str, owner), "weight"])
    return name if owner[0] == "lm_head" else f"model.{name}"


def by_layer(state: nnx.State) -> Iterator[tuple[tuple[Any, ...], jax.Array]]:
    """The parameters with their paths; each of stacked layers under its own number."""
    for path, leaf in nnx.to_flat_state(state):
        if sharding.is_stacked(path):
            layers, *rest = path
            yield from (((layers, i, *rest), leaf[i]) for i in range(leaf.shape[0]))
        else:
            yield path, leaf[...]


def is_transposed(path: tuple[Any, ...]) -> bool:
    """Torch keeps a projection as (out, in), Flax its kernel as (in, out)."""
    return path[-1] == "kernel"


def export(
    model: Qwen3,
    folder: Path,
    *,
    tokenizer_json: Path,
    base: Path | None = None,
    dtype: DTypeLike = jnp.bfloat16,
) -> None:
    """Write `model` and its tokenizer to `folder`, which is replaced if it exists.

    What says how to talk to the model is that of the checkpoint in `base` that it came from, if
    there is one. Every process of the model's mesh must call this; each parameter is gathered in
    turn and process 0 alone writes, so the others may return before the files are there.
    """
    writer = jax.process_index() == 0
    tensors: dict[str, np.ndarray] = {}
    for path, parameter in by_layer(nnx.state(model, nnx.Param)):
        whole = multihost_utils.process_allgather(parameter.astype(dtype), tiled=True)
        if writer:
            whole = whole.T if is_transposed(path) else whole
            tensors[tensor_name(path)] = np.ascontiguousarray(whole)
    if not writer:
        return
    documents = _documents(model.config, tokenizer_json, str(jnp.dtype(dtype)))
    kept = [base / name for name in TALK if (base / name).exists()] if base else []
    with replaced_whole(folder) as fresh:
        write(fresh, documents, WEIGHTS, tensors)
        for file in (*kept, tokenizer_json):
            shutil.copyfile(file, fresh / file.name)


def write(
    folder: Path, documents: Mapping[str, Any], weights: str, tensors: dict[str, np.ndarray]
) -> None:
    """The documents as JSON files of their names, and the tensors in the file `weights`."""
    for name, content in documents.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    save_file(tensors, folder / weights, metadata={"format": "pt"})
    # safetensors makes its file readable by its owner alone; a server may be another user.
    (folder / weights).chmod((folder / next(iter(documents))).stat().st_mode)


def load(folder: Path, mesh: Mesh, *, dtype: DTypeLike) -> Qwen3:
    """The model in `folder`, its parameters and activations in `dtype`, cut over `mesh`.

    Raises ModelError that lists every fault: a config that is not served, a file that is missing
    or damaged, tensors that are missing, unexpected or of another shape, and sizes that the mesh
    does not divide.
    """
    config = read_config(folder)
    graph, state = sharding.abstract(config, mesh, dtype)
    shapes = sharding.cast(nnx.to_pure_dict(state), dtype)
    return nnx.merge(graph, nnx.State(read(folder, shapes)))


def read(folder: Path, shapes: Any) -> Any:
    """The weights in `folder`, in place of the model's `shapes`: each in their type and place.

    Both are nested dicts by module name. Every process of the mesh must call this; it reads the
    parts of its own devices. Raises ModelError that lists every fault.
    """
    flat: dict[tuple[Any, ...], Any] = flatten_dict(shapes)
    parts = {path: _parts(path, leaf) for path, leaf in flat.items()}
    with contextlib.ExitStack() as stack:
        tensors = _open(folder, stack)
        wanted = {name: part for named in parts.values() for name, part in named.items()}
        if faults := list(_mismatches(wanted, tensors)):
            raise ModelError(f"{folder}: checkpoint of another shape", faults)
        found = {
            path: _read([tensors[name] for name in parts[path]], path, leaf)
            for path, leaf in flat.items()
        }
    return unflatten_dict(found)


def _parts(
    path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct
) -> dict[str, tuple[tuple[Any, ...], tuple[int, ...]]]:
    """The tensors of a parameter by name, each with its path and shape: one, or one a layer."""
    if not sharding.is_stacked(path):
        return {tensor_name(path): (path, leaf.shape)}
    layers, *rest = path
    paths = [(layers, i, *rest) for i in range(leaf.shape[0])]
    return {tensor_name(path): (path, leaf.shape[1:]) for path in paths}


def _read(tensors: list[Any], path: tuple[Any, ...], wanted: jax.ShapeDtypeStruct) -> jax.Array:
    def one(tensor: Any, index: Any) -> np.ndarray:
        if is_transposed(path):
            return np.ascontiguousarray(tensor[index[::-1]].T.astype(wanted.dtype))
        return tensor[index].astype(wanted.dtype)

    def part(index: Any) -> np.ndarray:
        if not sharding.is_stacked(path):
            return one(tensors[0], index)
        return np.stack([one(tensor, index[1:]) for tensor in tensors[index[0]]])

    if wanted.sharding is None:
        raise TypeError(f"no sharding was declared for {'.'.join(map(str, path))}")
    return jax.make_array_from_callback(wanted.shape, wanted.sharding, part)


def _open(folder: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Every tensor of the checkpoint, by name, unread. Raises ModelError."""
    index = folder / INDEX
    names = sorted(set(read_json(index)["weight_map"].values())) if index.exists() else [WEIGHTS]
    tensors, faults = {}, []
    for name in names:
        try:
            file = stack.enter_context(safe_open(folder / name, framework="np"))
        except FileNotFoundError:
            faults.append(f"{name} is missing")
        except (SafetensorError, OSError) as error:
            faults.append(f"{name} is damaged or not safetensors ({error})")
        else:
            tensors |= {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 (no dict)
    if faults:
        raise ModelError(str(folder), faults)
    return tensors


def _mismatches(
    wanted: Mapping[str, tuple[tuple[Any, ...], tuple[int, ...]]], found: Mapping[str, Any]
) -> Iterator[str]:
    for name, (path, ours) in wanted.items():
        if name not in found:
            yield f"{name} is missing"
            continue
        tensor = found[name]
        shape = ours[::-1] if is_transposed(path) else ours
        if tuple(tensor.get_shape()) != shape:
            yield f"{name} is {tuple(tensor.get_shape())}, but config.json makes it {shape}"
        if tensor.get_dtype() not in FLOATS:
            yield f"{name} is stored as {tensor.get_dtype()}, not one of {', '.join(FLOATS)}"
    for name in sorted(set(found) - set(wanted)):
        # Some tools store the tied head again; it is the embedding by definition.
        if name != HEAD:
            yield f"{name} is unexpected"


def _documents(config: ModelConfig, tokenizer_json: Path, dtype: str) -> dict[str, Any]:
    """The JSON files beside the weights, by name."""
    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    special = {
        f"{name}_token": tokenizer.id_to_token(token)
        for name, token in (
            ("bos", config.bos_token_id),
            ("eos", next(iter(config.eos_token_ids), None)),
            ("pad", config.pad_token_id),
        )
        if token is not None
    }
    chat = all(tokenizer.token_to_id(token) is not None for token in CHAT_TOKENS)
    return {
        "config.json": config.to_hf(dtype=dtype),
        "generation_config.json": {**config.special_tokens(), "do_sample": True},
        "special_tokens_map.json": special,
        "tokenizer_config.json": {
            **special,
            **({"chat_template": CHAT_TEMPLATE} if chat else {}),
            "clean_up_tokenization_spaces": False,
            "model_max_length": config.max_position_embeddings,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    }


@contextlib.contextmanager
def replaced_whole(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` that takes its place when the block ends without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    fresh.mkdir()
    try:
        yield fresh
        if folder.exists():
            old = folder.with_name(f"{fresh.name}.old")
            folder.rename(old)
            fresh.rename(folder)
            shutil.rmtree(old)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Make renames in `folder` survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
