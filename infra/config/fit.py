"""Whether a workload fits the slice it names: its mesh, its batch, and how Ray places it."""

import math
from collections.abc import Iterator

from infra.config.entries import Entries
from infra.config.models import InferSpec, ServeSpec, TrainSpec
from infra.config.parse import Scope
from infra.errors import Problem
from infra.tpu.slice import TpuSlice
from workloads.contract import told_devices
from workloads.settings import MeshSettings


def faults(entries: Entries) -> Iterator[Problem]:
    scope = entries.scope
    for where, trainer in entries.trained.items():
        yield from _schedule(where, trainer, scope)
        yield from _heads(where, trainer, scope)
        yield from _tensor(f"{where}.mesh.tensor", trainer.mesh, trainer, entries)
        yield from _fsdp(f"{where}.mesh.fsdp", trainer, entries)
        if tpu := entries.slice_of(trainer):
            yield from _trainable(f"{where}.slice", trainer, tpu, entries)
            yield from _mesh(f"{where}.mesh", trainer.mesh, tpu, tpu.count, scope)
            yield from _copies(f"{where}.mesh.data", trainer.mesh, tpu, scope)
            yield from _batch(f"{where}.global_batch", trainer, tpu, scope)
            yield from _parts(f"{where}.gradient_accumulation_steps", trainer, tpu, scope)
    for where, job in entries.inferred.items():
        if tpu := entries.slice_of(job):
            yield from _inferable(where, job, tpu, entries)
    for where, server in entries.served.items():
        whole = entries.slice_of(server)
        tpu = server.replica(whole) if whole else None
        mesh = server.mesh_on(tpu.devices) if tpu else server.mesh
        trained = entries.model_of(server)
        if mesh and trained and server.engine == "jax":
            yield from _tensor(f"{where}.mesh.tensor", mesh, trained, entries)
        if mesh:
            yield from _rows(f"{where}.max_batch", server.max_batch, mesh, scope)
        if whole and server.engine != "diffusion":  # see image_rules
            yield from _part(f"{where}.replica_topology", server, whole, entries)
        if tpu and mesh:
            yield from _servable(f"{where}.slice", server, tpu, scope)
            yield from _one_copy(f"{where}.mesh.data", server, mesh, scope)
            yield from _mesh(f"{where}.mesh", mesh, tpu, 1, scope)


def _schedule(where: str, trainer: TrainSpec, scope: Scope) -> Iterator[Problem]:
    if trainer.warmup_steps >= trainer.steps:
        yield scope.problem(
            f"{where}.warmup_steps",
            trainer.warmup_steps,
            f"leaves no step to train at full rate: steps is {scope.quote(trainer.steps)}",
            "use fewer than steps",
        )
    if trainer.profile and trainer.profile.traced[-1] > trainer.steps:
        yield scope.problem(
            f"{where}.profile",
            trainer.profile.traced[-1],
            f"is the last step to be traced, and steps is {scope.quote(trainer.steps)}",
            "trace earlier or fewer steps",
        )


def _heads(where: str, trainer: TrainSpec, scope: Scope) -> Iterator[Problem]:
    if trainer.base is not None:  # a checkpoint's are right
        return
    queries, shared = trainer.model.attention_heads, trainer.model.key_value_heads
    if queries % shared:
        yield scope.problem(
            f"{where}.model.key_value_heads",
            shared,
            f"key-value heads cannot be shared evenly by {scope.quote(queries)} attention heads",
            f"use a divisor of {scope.quote(queries)}",
        )


def _inferable(where: str, job: InferSpec, tpu: TpuSlice, entries: Entries) -> Iterator[Problem]:
    scope, mesh = entries.scope, job.mesh_on(tpu.workers, tpu.devices_per_host)
    if job.longest_prompt < 1:
        most = scope.quote(job.max_sequence_length)
        yield scope.problem(
            f"{where}.max_tokens",
            job.max_tokens,
            f"leaves no room for a prompt: max_sequence_length is {most}",
            "use less than that",
        )
    if trained := entries.model_of(job):
        yield from _tensor(f"{where}.mesh.tensor", mesh, trained, entries)
    yield from _trainable(f"{where}.slice", job, tpu, entries)
    yield from _mesh(f"{where}.mesh", mesh, tpu, tpu.count, scope)
    yield from _copies(f"{where}.mesh.data", mesh, tpu, scope)
    yield from _rows(f"{where}.batch_size", job.batch_size, mesh, scope)


def _trainable(
    where: str, trainer: TrainSpec | InferSpec, tpu: TpuSlice, entries: Entries
) -> Iterator[Problem]:
    """Ray Train must get the whole of one slice, and of several only what spans them."""
    if tpu.count > 1 and not tpu.multi_host:
        yield entries.scope.problem(
            where,
            trainer.slice,
            f"is {tpu.count} slices of one host each, and one program spans several slices only "
            "if they are of several hosts",
            "use count 1, or a topology of several hosts",
        )
    elif tpu.multi_host and not tpu.reserved_whole:
        others = [
            other.name
            for other in entries.beside(tpu)
            if other.generation == tpu.generation and other.chips_per_host >= tpu.chips_per_host
        ]
        if tpu.count > 1 or others:
            rival = f"slice {others[0]!r}" if others else "its other copy"
            yield entries.scope.problem(
                where,
                trainer.slice,
                f"is {tpu.topology} on {tpu.machine.name}: Ray Train takes it for one host and "
                f"would mix its hosts with those of {rival}",
                "use a machine type that holds the topology in one host, or another topology",
            )


def _servable(where: str, server: ServeSpec, tpu: TpuSlice, scope: Scope) -> Iterator[Problem]:
    if server.engine == "vllm" and not tpu.hosts_known_to_ray:
        yield scope.problem(
            where,
            server.slice,
            f"is {tpu.topology} on {tpu.machine.name}, of {tpu.hosts} hosts of "
            f"{tpu.chips_per_host} chips: Ray Serve takes it for one of {tpu.ray_chips_per_host}, "
            "and would wait for that for ever",
            "use a machine type that holds the topology in one host, or another topology",
        )


def _part(where: str, server: ServeSpec, tpu: TpuSlice, entries: Entries) -> Iterator[Problem]:
    """Serve LLM takes whole slices; ours takes the parts that Ray can reserve."""
    part, scope = server.replica_topology, entries.scope
    if part is None:
        return
    shape = f"{tpu.topology} on {tpu.machine.name}"
    others = [one.name for one in entries.beside(tpu) if one.part_topologies]
    if server.engine == "vllm":
        what = f"is no whole slice, and a replica of vLLM takes all of slice {tpu.name}, {shape}"
        yield scope.problem(where, part, what, "leave it out, or use engine jax")
    elif part not in tpu.part_topologies:
        parts = ", ".join(tpu.part_topologies)
        what = f"is no part that Ray can reserve of slice {tpu.name}, {shape}"
        fix = f"use one of {parts}, or leave it out" if parts else "leave it out"
        yield scope.problem(where, part, what, fix)
    elif tpu.count > 1 or others:
        rival = f"slice {others[0]}" if others else f"{tpu.count} copies of slice {tpu.name}"
        what = f"would be looked for in the first slice that Ray finds, and there are {rival} too"
        yield scope.problem(where, part, what, "use count 1, and no other slice that has parts")


def _one_copy(where: str, server: ServeSpec, mesh: MeshSettings, scope: Scope) -> Iterator[Problem]:
    if server.engine == "vllm" and mesh.data > 1:
        yield scope.problem(
            where,
            mesh.data,
            "copies of the model in one replica are not what vLLM makes: it holds one",
            "use data 1, and for more copies smaller slices and a larger count",
        )


def _rows(where: str, rows: int, mesh: MeshSettings, scope: Scope) -> Iterator[Problem]:
    """The data axis cuts the requests that are decoded together."""
    if rows % mesh.data:
        data = scope.quote(mesh.data)
        yield scope.problem(
            where,
            rows,
            f"is no multiple of mesh axis data, which is {data}",
            f"use a multiple of {data}",
        )


def _mesh(
    where: str, mesh: MeshSettings, tpu: TpuSlice, copies: int, scope: Scope
) -> Iterator[Problem]:
    devices = tpu.devices * copies
    if mesh.devices != devices:
        there = told_devices(devices, tpu.generation.devices_per_chip)
        yield Problem(
            where,
            f"{scope.show(f'{mesh} = {mesh.devices}')} does not cover the {there} of the slice",
            f"choose the axes so that their product is {devices}",
        )


def _copies(where: str, mesh: MeshSettings, tpu: TpuSlice, scope: Scope) -> Iterator[Problem]:
    """The inner axes talk at every layer, too much for the network between slices."""
    if mesh.devices == tpu.devices * tpu.count and mesh.data % tpu.count:
        yield scope.problem(
            where,
            mesh.data,
            f"would spread one copy of the model over several of the {tpu.count} slices",
            f"use a multiple of {tpu.count}",
        )


def _batch(where: str, trainer: TrainSpec, tpu: TpuSlice, scope: Scope) -> Iterator[Problem]:
    """Ray Data hands each host an equal part, of which each of its devices takes an equal part."""
    devices = tpu.devices * tpu.count
    if trainer.global_batch % devices:
        below, above = (trainer.global_batch // devices + more for more in (0, 1))
        nearest = " or ".join(scope.quote(times * devices) for times in (below, above) if times)
        there = told_devices(devices, tpu.generation.devices_per_chip)
        yield scope.problem(
            where,
            trainer.global_batch,
            f"sequences do not divide over {there} ({tpu.workers} hosts of {tpu.devices_per_host})",
            f"use a multiple of {devices}, such as {nearest}",
        )


def _parts(where: str, trainer: TrainSpec, tpu: TpuSlice, scope: Scope) -> Iterator[Problem]:
    """Each part of a batch takes as many rows of every device."""
    batch, rows = trainer.global_batch, trainer.global_batch // trainer.mesh.batch_parts
    covers = trainer.mesh.devices == tpu.devices * tpu.count and not batch % trainer.mesh.devices
    if covers and rows % trainer.gradient_accumulation_steps:
        yield scope.problem(
            where,
            trainer.gradient_accumulation_steps,
            f"parts of the {scope.quote(rows)} sequences of each device (data x fsdp) are unequal",
            f"use a divisor of {scope.quote(rows)}",
        )


def _fsdp(where: str, trainer: TrainSpec, entries: Entries) -> Iterator[Problem]:
    """Every matrix has one side of the hidden size, which this axis cuts into equal parts."""
    scope, sizes = entries.scope, entries.sizes_of(trainer)
    size = sizes.hidden_size if sizes else 0
    if size % trainer.mesh.fsdp:
        yield scope.problem(
            where,
            trainer.mesh.fsdp,
            f"does not divide hidden_size {scope.quote(size)}",
            f"use a divisor of {scope.quote(size)}, or another model",
        )


def _tensor(
    where: str, mesh: MeshSettings, trained: TrainSpec, entries: Entries
) -> Iterator[Problem]:
    """The tensor axis cuts heads, feed-forward and vocabulary into equal parts."""
    model = entries.sizes_of(trained)
    if model is None:
        return
    sizes = {
        "attention_heads": model.attention_heads,
        "key_value_heads": model.key_value_heads,
        "intermediate_size": model.intermediate_size,
        "vocab_size": model.vocab_size,  # 0 if it is not known, which every axis divides
    }
    uneven = [
        f"{name} {entries.scope.quote(size)}" for name, size in sizes.items() if size % mesh.tensor
    ]
    if uneven:
        common = entries.scope.quote(math.gcd(*sizes.values()))
        yield entries.scope.problem(
            where,
            mesh.tensor,
            f"does not divide {', '.join(uneven)} of workload {entries.scope.quote(trained.name)}",
            f"use a divisor of {common}, or another model",
        )
