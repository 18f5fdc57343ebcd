"""Whether a workload fits the slice it names: its mesh, its batch, and how Ray places it."""

import math
from collections.abc import Iterator

from infra.config.entries import Entries
from infra.config.models import ServeSpec, TrainSpec
from infra.config.parse import Scope
from infra.errors import Problem
from infra.tpu.slice import TpuSlice
from workloads.settings import MeshSettings


def faults(entries: Entries) -> Iterator[Problem]:
    scope = entries.scope
    for where, trainer in entries.trained.items():
        yield from _schedule(where, trainer, scope)
        yield from _heads(where, trainer, scope)
        yield from _tensor(f"{where}.mesh.tensor", trainer.mesh, trainer, entries)
        if tpu := entries.slice_of(trainer):
            yield from _trainable(f"{where}.slice", trainer, tpu, entries)
            yield from _mesh(f"{where}.mesh", trainer.mesh, tpu.chips * tpu.count, scope)
            yield from _copies(f"{where}.mesh.data", trainer.mesh, tpu, scope)
            yield from _batch(f"{where}.global_batch", trainer, tpu, scope)
    for where, server in entries.served.items():
        tpu = entries.slice_of(server)
        mesh = server.mesh_on(tpu.chips) if tpu else server.mesh
        trained = entries.model_of(server)
        if mesh and trained:
            yield from _tensor(f"{where}.mesh.tensor", mesh, trained, entries)
        if mesh:
            yield from _rows(f"{where}.max_batch", server, mesh, scope)
        if tpu and mesh:
            yield from _servable(f"{where}.slice", server, tpu, scope)
            yield from _one_copy(f"{where}.mesh.data", server, mesh, scope)
            yield from _mesh(f"{where}.mesh", mesh, tpu.chips, scope)


def _schedule(where: str, trainer: TrainSpec, scope: Scope) -> Iterator[Problem]:
    if trainer.warmup_steps >= trainer.steps:
        yield scope.problem(
            f"{where}.warmup_steps",
            trainer.warmup_steps,
            f"leaves no step to train at full rate: steps is {scope.quote(trainer.steps)}",
            "use fewer than steps",
        )


def _heads(where: str, trainer: TrainSpec, scope: Scope) -> Iterator[Problem]:
    queries, shared = trainer.model.attention_heads, trainer.model.key_value_heads
    if queries % shared:
        yield scope.problem(
            f"{where}.model.key_value_heads",
            shared,
            f"key-value heads cannot be shared evenly by {scope.quote(queries)} attention heads",
            f"use a divisor of {scope.quote(queries)}",
        )


def _trainable(
    where: str, trainer: TrainSpec, tpu: TpuSlice, entries: Entries
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
    if tpu.multi_host and server.engine == "jax":
        yield scope.problem(
            where,
            server.slice,
            f"has {tpu.hosts} hosts, and a replica of engine jax is served by one host",
            f"use engine vllm, or a slice of one host, such as {tpu.machine.host_topology} on "
            f"{tpu.machine.name}",
        )
    elif server.engine == "vllm" and not tpu.hosts_known_to_ray:
        yield scope.problem(
            where,
            server.slice,
            f"is {tpu.topology} on {tpu.machine.name}, of {tpu.hosts} hosts of "
            f"{tpu.chips_per_host} chips: Ray Serve takes it for one of {tpu.ray_chips_per_host}, "
            "and would wait for that for ever",
            "use a machine type that holds the topology in one host, or another topology",
        )


def _one_copy(where: str, server: ServeSpec, mesh: MeshSettings, scope: Scope) -> Iterator[Problem]:
    if server.engine == "vllm" and mesh.data > 1:
        yield scope.problem(
            where,
            mesh.data,
            "copies of the model in one replica are not what vLLM makes: it holds one",
            "use data 1, and for more copies smaller slices and a larger count",
        )


def _rows(where: str, server: ServeSpec, mesh: MeshSettings, scope: Scope) -> Iterator[Problem]:
    """The data axis cuts the requests that are decoded together."""
    if server.max_batch % mesh.data:
        data = scope.quote(mesh.data)
        yield scope.problem(
            where,
            server.max_batch,
            f"is no multiple of mesh axis data, which is {data}",
            f"use a multiple of {data}",
        )


def _mesh(where: str, mesh: MeshSettings, chips: int, scope: Scope) -> Iterator[Problem]:
    if mesh.devices != chips:
        axes = scope.show(f"data {mesh.data} x tensor {mesh.tensor} = {mesh.devices}")
        yield Problem(
            where,
            f"{axes} does not cover the {chips} chips of the slice",
            f"choose data and tensor so that data x tensor = {chips}",
        )


def _copies(where: str, mesh: MeshSettings, tpu: TpuSlice, scope: Scope) -> Iterator[Problem]:
    """The tensor axis talks at every layer, too much for the network between slices."""
    if mesh.devices == tpu.chips * tpu.count and mesh.data % tpu.count:
        yield scope.problem(
            where,
            mesh.data,
            f"would spread one copy of the model over several of the {tpu.count} slices",
            f"use a multiple of {tpu.count}",
        )


def _batch(where: str, trainer: TrainSpec, tpu: TpuSlice, scope: Scope) -> Iterator[Problem]:
    """Ray Data hands each host an equal part, of which each of its chips takes an equal part."""
    chips = tpu.chips * tpu.count
    if trainer.global_batch % chips:
        below, above = (trainer.global_batch // chips + more for more in (0, 1))
        nearest = " or ".join(scope.quote(times * chips) for times in (below, above) if times)
        yield scope.problem(
            where,
            trainer.global_batch,
            f"sequences do not divide over {chips} chips ({tpu.workers} hosts of "
            f"{tpu.chips_per_host})",
            f"use a multiple of {chips}, such as {nearest}",
        )


def _tensor(
    where: str, mesh: MeshSettings, trained: TrainSpec, entries: Entries
) -> Iterator[Problem]:
    """The tensor axis cuts heads, feed-forward and vocabulary into equal parts."""
    model, data = trained.model, entries.data_of(trained)
    sizes = {
        "attention_heads": model.attention_heads,
        "key_value_heads": model.key_value_heads,
        "intermediate_size": model.intermediate_size,
    }
    if data:
        sizes["vocab_size"] = data.vocab_size
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
