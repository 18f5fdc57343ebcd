"""Whether a model fits the memory of the chips that are to hold it.

Only what is there for certain is counted: weights, what training keeps of each, and a server's
cache. Activations and the compiler's scratch come on top, so what passes here may still be tight.
A hub's model is as large as the stack file says, else as its name does; the disk that it is fetched
to is judged as well.
"""

import re
from collections.abc import Iterator

from infra.config.cluster import AutopilotCluster
from infra.config.entries import Entries
from infra.config.models import Hub, ServeSpec, TrainSpec
from infra.errors import Problem
from infra.tpu.node import pod_disk_gib
from infra.tpu.slice import TpuSlice
from workloads.settings import ModelSettings

TRAINING_BYTES = 16
"""Of each parameter, in float32: itself, its gradient, and Adam's two moments."""
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2}
TIGHT = 0.8
"""Part of the memory from which weights leave little for the cache and the compiler."""

_GIB = 2**30
_FEWER_BITS = re.compile(r"awq|gptq|gguf|fp4|fp8|int4|int8|w4a|w8a|[48]bit", re.IGNORECASE)
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
        if tpu:
            yield from _hub_faults(where, server, tpu, entries)


def remarks(entries: Entries) -> Iterator[Problem]:
    for where, server in entries.served.items():
        tpu, weights_gib = entries.slice_of(server), hub_weights_gib(server)
        if tpu is None or weights_gib is None:
            continue
        hbm_gib = _hbm_gib(server, tpu)
        if TIGHT * hbm_gib < weights_gib <= hbm_gib:
            show = entries.scope.show
            yield Problem(
                f"{where}.model.hub",
                f"{show(f'{weights_gib:.0f}')} GiB of weights leave little of the "
                f"{show(str(hbm_gib))} GiB that the chips of one copy have",
                "use a larger topology if the cache or the compiler finds no room",
            )


def hub_weights_gib(server: ServeSpec) -> float | None:
    """As declared, else as the model's name says. None if that says nothing, or fewer bits."""
    if not isinstance(server.model, Hub):
        return None
    if server.model.weights_gib:
        return server.model.weights_gib
    sizes = [float(size) for size in _SIZE_IN_NAME.findall(server.model.hub)]
    if len(sizes) != 1 or _FEWER_BITS.search(server.model.hub):
        return None
    return sizes[0] * 1e9 * WEIGHT_BYTES[server.dtype] / _GIB


def _hub_faults(
    where: str, server: ServeSpec, tpu: TpuSlice, entries: Entries
) -> Iterator[Problem]:
    """Of a hub's model, by what is known before it is fetched."""
    weights_gib, show = hub_weights_gib(server), entries.scope.show
    if weights_gib is None:
        return
    weights, hbm_gib = show(f"{weights_gib:.0f}"), _hbm_gib(server, tpu)
    if weights_gib > hbm_gib:
        yield Problem(
            f"{where}.model.hub",
            f"{weights} GiB of weights do not fit the {show(str(hbm_gib))} GiB that the chips of "
            "one copy have",
            "use a larger topology, or write weights_gib if what is stored is smaller",
        )
    autopilot = isinstance(entries.cluster, AutopilotCluster)
    room_gib = pod_disk_gib(tpu.boot_disk_gib, autopilot=autopilot)
    if weights_gib > room_gib:
        yield Problem(
            f"{where}.model.hub",
            f"{weights} GiB of weights do not fit the {room_gib} GiB that a host's disk leaves to "
            "its pod, and each host stores the whole model",
            f"write a larger boot_disk_gib on slice {tpu.name}, or weights_gib if what is stored "
            "is smaller",
        )


def _hbm_gib(server: ServeSpec, tpu: TpuSlice) -> int:
    """Of the chips that hold one copy."""
    return server.mesh_on(tpu.chips).tensor * tpu.generation.hbm_gib_per_chip


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
