"""Whether a model fits the memory of the chips that are to hold it.

Only what is there for certain is counted: weights, what training keeps of each, and a server's
cache. Activations and the compiler's scratch come on top, so what passes here may still be tight.
"""

import re
from collections.abc import Iterator

from infra.config.entries import Entries
from infra.config.models import Hub, ServeSpec, TrainSpec
from infra.errors import Problem
from infra.tpu.slice import TpuSlice
from workloads.settings import ModelSettings

TRAINING_BYTES = 16
"""Of each parameter, in float32: itself, its gradient, and Adam's two moments."""
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2}
TIGHT = 0.8
"""Part of the memory from which weights leave little for the cache and the compiler."""

_GIB = 2**30
_SIZE_IN_NAME = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,2})?)[bB](?![A-Za-z0-9])")


def faults(entries: Entries) -> Iterator[Problem]:
    for where, trainer in entries.trained.items():
        tpu, data = entries.slice_of(trainer), entries.data_of(trainer)
        if tpu:
            size = parameters(trainer.model, data.vocab_size if data else 0)
            held = size * TRAINING_BYTES / trainer.mesh.tensor
            kept = "weights, gradients and the optimizer's moments"
            yield from _too_large(f"{where}.model", held, kept, tpu, entries)
    for where, server in entries.served.items():
        tpu, trained = entries.slice_of(server), entries.model_of(server)
        if tpu and trained and server.engine == "jax":
            held = _served(server, trained, tpu, entries)
            yield from _too_large(where, held, "weights and the cache", tpu, entries)


def remarks(entries: Entries) -> Iterator[Problem]:
    """A hub's model is known by its name alone, which may say how large it is."""
    for where, server in entries.served.items():
        tpu = entries.slice_of(server)
        name = server.model.hub if isinstance(server.model, Hub) else ""
        sizes = [float(size) for size in _SIZE_IN_NAME.findall(name)]
        if tpu is None or len(sizes) != 1:
            continue
        shared = server.mesh_on(tpu.chips).tensor * tpu.generation.hbm_gib_per_chip
        weights = sizes[0] * 1e9 * WEIGHT_BYTES[server.dtype] / _GIB
        if weights > TIGHT * shared:
            show = entries.scope.show
            yield Problem(
                f"{where}.model.hub",
                f"{show(f'{sizes[0]:g}')} billion parameters, as its name says, are "
                f"{show(f'{weights:.0f}')} GiB in {server.dtype}, of {show(str(shared))} GiB that "
                "the chips of one copy have, unless it is stored in fewer bits",
                "use a larger topology if the cache or the compiler finds no room",
            )


def parameters(model: ModelSettings, vocab_size: int) -> int:
    """Of a decoder whose embedding is also its last layer."""
    width, heads = model.hidden_size, model.head_dim
    attention = 2 * width * heads * (model.attention_heads + model.key_value_heads)
    feed_forward = 3 * width * model.intermediate_size
    norms = 2 * width + 2 * heads
    return vocab_size * width + model.layers * (attention + feed_forward + norms) + width


def _served(server: ServeSpec, trained: TrainSpec, tpu: TpuSlice, entries: Entries) -> float:
    """Bytes a chip."""
    mesh, model, data = server.mesh_on(tpu.chips), trained.model, entries.data_of(trained)
    weights = parameters(model, data.vocab_size if data else 0) / mesh.tensor
    tokens = server.max_batch * server.max_sequence_length
    cache = 2 * tokens * model.layers * model.key_value_heads * model.head_dim / mesh.devices
    return (weights + cache) * WEIGHT_BYTES[server.dtype]


def _too_large(
    where: str, held: float, kept: str, tpu: TpuSlice, entries: Entries
) -> Iterator[Problem]:
    has = tpu.generation.hbm_gib_per_chip
    if held > has * _GIB:
        size = entries.scope.show(f"{held / _GIB:.1f}")
        yield Problem(
            where,
            f"{kept} take {size} GiB of each chip, and one of {tpu.generation.name} has {has}",
            "use a larger mesh.tensor, a smaller model, or chips with more memory",
        )
