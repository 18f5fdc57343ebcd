"""What engine diffusion draws with: a model of its own kind, whole on each chip of one host."""

from collections.abc import Iterator
from pathlib import Path

from infra.config.entries import Entries
from infra.config.models import Folder, Hub, ServeSpec
from infra.config.parse import Scope
from infra.errors import Problem
from workloads.contract import device_noun
from workloads.model.config import ModelError
from workloads.serve.diffusion.config import read_config

_MODEL = "use {path: ...}, the folder of a diffusion model"


def faults(entries: Entries) -> Iterator[Problem]:
    for where, server in entries.served.items():
        if server.engine == "diffusion":
            yield from _settings_of_text(where, server, entries.scope)
            yield from _cut(where, server, entries)
            yield from _model(f"{where}.model", server, entries)
        elif server.sampler is not None:
            what = f"is of engine diffusion, and this one is {server.engine}"
            yield Problem(f"{where}.sampler", what, "leave it out, or use engine diffusion")


def _settings_of_text(where: str, server: ServeSpec, scope: Scope) -> Iterator[Problem]:
    if "max_sequence_length" in server.model_fields_set:
        yield scope.problem(
            f"{where}.max_sequence_length",
            server.max_sequence_length,
            "is not asked by engine diffusion, whose model says how many tokens of a prompt it "
            "reads",
            "leave it out",
        )


def _cut(where: str, server: ServeSpec, entries: Entries) -> Iterator[Problem]:
    """Each device has a whole copy, and one process has all devices."""
    scope, tpu = entries.scope, entries.slice_of(server)
    if server.mesh is not None and server.mesh.tensor > 1:
        noun = device_noun(tpu.generation.devices_per_chip if tpu else 1)
        what = f"{noun}s would share one copy of the model, and engine diffusion cuts none"
        fix = f"leave mesh out: each {noun} draws its part of a batch"
        yield scope.problem(f"{where}.mesh.tensor", server.mesh.tensor, what, fix)
    if server.replica_topology is not None:
        what = "is no whole slice, and a replica of engine diffusion takes all of one"
        yield scope.problem(
            f"{where}.replica_topology", server.replica_topology, what, "leave it out"
        )
    if tpu and tpu.multi_host:
        yield scope.problem(
            f"{where}.slice",
            server.slice,
            f"is {tpu.topology} on {tpu.machine.name}, of {tpu.hosts} hosts, and engine diffusion "
            "draws on one",
            "use a topology of one host, and a larger count for more replicas",
        )


def _model(where: str, server: ServeSpec, entries: Entries) -> Iterator[Problem]:
    scope = entries.scope
    match server.model:
        case Hub(hub=name):
            what = "cannot be loaded by engine diffusion, whose folders have a layout of their own"
            yield scope.problem(f"{where}.hub", name, what, _MODEL)
        case str() as name if entries.model_of(server):
            what = "trains a model of text, and engine diffusion draws pictures"
            yield scope.problem(where, name, what, f"{_MODEL}, or engine jax")
        case Folder(path=path) if "://" not in path:
            yield from _readable(f"{where}.path", path, server, scope)
        case _:  # not declared, or not to be read here
            pass


def _readable(where: str, path: str, server: ServeSpec, scope: Scope) -> Iterator[Problem]:
    try:
        config = read_config(Path(path))
    except ModelError as error:
        for line in str(error).splitlines():
            what = f"holds no diffusion model: {scope.show(line)}"
            yield Problem(where, what, "name the folder of one (docs/images.md has the layout)")
        return
    if (steps := server.sampler_used.steps) > config.noise_steps:
        yield scope.problem(
            f"{where.removesuffix('.model.path')}.sampler.steps",
            steps,
            f"is more than the {config.noise_steps} steps of noise that the model was made for",
            "use fewer",
        )
