"""Whether a model fits the memory of the devices that are to hold it.

Only what is there for certain is counted: weights, what training keeps of each, and a server's
cache. Activations and the compiler's scratch come on top, so what passes here may still be tight.
What vLLM serves is judged by vllm_rules.
"""

from collections.abc import Iterator

from infra.config.entries import Entries
from infra.config.model_facts import WEIGHT_BYTES, ModelFacts
from infra.config.models import InferSpec, ServeSpec, TrainSpec
from infra.errors import Problem
from infra.tpu.slice import TpuSlice
from workloads.contract import device_noun
from workloads.settings import MeshSettings

TRAINING_BYTES = 16
"""Of each parameter, in float32: itself, its gradient, and Adam's two moments."""

_GIB = 2**30
_SERVED = "weights and the cache"


def faults(entries: Entries) -> Iterator[Problem]:
    for where, trainer in entries.trained.items():
        if tpu := entries.slice_of(trainer):
            place = "model" if trainer.base is None else "base"
            yield from training(f"{where}.{place}", trainer, tpu, entries)
    for where, server in entries.served.items():
        tpu, trained = entries.slice_of(server), entries.model_of(server)
        if tpu and trained and server.engine == "jax":
            mesh, rows = server.mesh_on(server.replica(tpu).devices), server.max_batch
            held = _served(server, mesh, rows, entries.sizes_of(trained))
            yield from _too_large(where, held, _SERVED, "mesh.tensor", tpu, entries)
    for where, job in entries.inferred.items():
        tpu, trained = entries.slice_of(job), entries.model_of(job)
        if tpu and trained:
            mesh = job.mesh_on(tpu.workers, tpu.devices_per_host)
            held = _served(job, mesh, job.batch_size, entries.sizes_of(trained))
            yield from _too_large(where, held, _SERVED, "mesh.tensor", tpu, entries)


def training(where: str, trainer: TrainSpec, tpu: TpuSlice, entries: Entries) -> Iterator[Problem]:
    """Of a run on this slice, or on a fallback of it with the mesh for that."""
    sizes = entries.sizes_of(trainer)
    if sizes is None:
        return
    held = sizes.parameters * TRAINING_BYTES
    kept = "weights, gradients and the optimizer's moments"
    if trainer.lora is not None:
        learned = sizes.adapter_parameters(trainer.lora) * TRAINING_BYTES
        held = sizes.parameters * WEIGHT_BYTES[trainer.dtype] + learned
        kept = "weights and adapters, with their gradients and moments,"
    held /= trainer.mesh.fsdp * trainer.mesh.tensor
    yield from _too_large(where, held, kept, "mesh.fsdp or mesh.tensor", tpu, entries)


def _served(
    user: ServeSpec | InferSpec,
    mesh: MeshSettings,
    rows: int,
    model: ModelFacts | None,
) -> float:
    """Bytes a device; 0 for a model whose sizes are not known."""
    if model is None:
        return 0
    weights = model.parameters / mesh.tensor
    tokens = rows * user.max_sequence_length
    cache = 2 * tokens * model.layers * model.key_value_heads * model.head_dim / mesh.devices
    return (weights + cache) * WEIGHT_BYTES[user.dtype]


def _too_large(
    where: str, held: float, kept: str, axes: str, tpu: TpuSlice, entries: Entries
) -> Iterator[Problem]:
    has, noun = tpu.hbm_gib_per_device, device_noun(tpu.generation.devices_per_chip)
    if held > has * _GIB:
        size = entries.scope.show(f"{held / _GIB:.1f}")
        yield Problem(
            where,
            f"{kept} take {size} GiB of each {noun}, and one of {tpu.generation.name} has {has}",
            f"use a larger {axes}, a smaller model, or chips with more memory",
        )
