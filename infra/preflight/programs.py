"""The steps that a stack's workloads run on TPUs, and which of them cannot be compiled, and why."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from infra.config import (
    DataSpec,
    Folder,
    Hub,
    InferSpec,
    ServeSpec,
    SpmdSpec,
    StackConfig,
    TrainSpec,
)
from infra.config.model_files import vocabulary
from infra.tpu.slice import TpuSlice
from workloads.model.config import ModelConfig, ModelError, read_config
from workloads.preflight.program import Chips, ServeStep, TrainStep
from workloads.train.choices import settings_on

_OTHER_ENGINES = {
    "vllm": "is served by vllm, which compiles by itself",
    "diffusion": "draws pictures, which is not compiled here",
}
"""Of which no step is compiled, and why."""


@dataclass(frozen=True)
class Subject:
    """A workload, and what its steps are compiled from."""

    where: str
    """Its place in the stack file."""
    workload: TrainSpec | ServeSpec
    tpu: TpuSlice
    model: ModelConfig
    sequence_length: int
    derived: bool = False
    """Whether mesh and parts of the batch follow from the slice, which is a fallback."""


@dataclass(frozen=True)
class Unknown:
    """A workload that is not compiled."""

    where: str
    why: str


def subjects(config: StackConfig) -> Iterator[Subject | Unknown]:
    """Every workload that runs programs of its own on a TPU."""
    for index, workload in enumerate(config.workloads):
        where = f"raytpu:workloads[{index}]"
        if isinstance(workload, InferSpec):
            yield Unknown(where, f"{workload.name} infers in batches, which is not compiled here")
        if isinstance(workload, SpmdSpec):
            yield Unknown(
                where, f"{workload.name} runs {workload.program}, which is not known here"
            )
        if not isinstance(workload, TrainSpec | ServeSpec):
            continue
        if isinstance(workload, ServeSpec) and workload.engine != "jax":
            yield Unknown(where, f"{workload.name} {_OTHER_ENGINES[workload.engine]}")
            continue
        model = _model(config, workload)
        if isinstance(model, str):
            yield Unknown(where, f"{workload.name}: {model}")
            continue
        tpu, longest = config.slice(workload.slice), _longest(config, workload, model)
        if isinstance(workload, ServeSpec):
            tpu = workload.replica(tpu)
        subject = Subject(where, workload, tpu, model, longest)
        yield subject
        yield from _instead(subject)


def _instead(subject: Subject) -> Iterator[Subject]:
    """A run on each fallback of its slice, with the mesh that it has there."""
    run = subject.workload
    if not isinstance(run, TrainSpec):
        return
    for shape in subject.tpu.fallback:
        there = settings_on(run.settings(), shape.contract())
        changes = {
            "mesh": there.mesh,
            "gradient_accumulation_steps": there.gradient_accumulation_steps,
        }
        moved = run.model_copy(update={"slice": shape.name, **changes})
        yield replace(subject, workload=moved, tpu=shape, derived=True)


def steps(subject: Subject) -> list[TrainStep | ServeStep]:
    workload, chips = subject.workload, _chips(subject.tpu, subject.workload)
    if isinstance(workload, TrainSpec):
        return [
            TrainStep(
                chips=chips,
                model=subject.model,
                sequence_length=subject.sequence_length,
                settings=workload.settings(),
            )
        ]
    settings = workload.settings()
    return [
        ServeStep(kind=kind, chips=chips, model=subject.model, settings=settings)
        for kind in ("prefill", "decode")
    ]


def _chips(tpu: TpuSlice, workload: TrainSpec | ServeSpec) -> Chips:
    """A run takes all copies of its slice, a replica one."""
    slices = tpu.count if isinstance(workload, TrainSpec) else 1
    return Chips(
        generation=tpu.generation.name,
        topology=tpu.topology,
        host_topology=tpu.machine.host_topology,
        slices=slices,
        devices=tpu.devices * slices,
        hbm_gib_per_device=tpu.hbm_gib_per_device,
    )


def _model(config: StackConfig, workload: TrainSpec | ServeSpec) -> ModelConfig | str:
    """The model, or why it is not known."""
    if isinstance(workload, TrainSpec):
        return _trained(config, workload)
    return _served(config, workload.model)


def _longest(config: StackConfig, workload: TrainSpec | ServeSpec, model: ModelConfig) -> int:
    """Tokens of a sequence. Those of a run are its corpus's, whatever its model is made for."""
    if isinstance(workload, TrainSpec) and isinstance(workload.data, str):
        data = config.workload(workload.data)
        if isinstance(data, DataSpec):
            return data.sequence_length
    return model.max_position_embeddings


def _served(config: StackConfig, origin: str | Folder | Hub) -> ModelConfig | str:
    if isinstance(origin, str):
        trained = config.workload(origin)
        return _trained(config, trained) if isinstance(trained, TrainSpec) else "no model"
    if not isinstance(origin, Folder):
        return "the model lies on the hub, and no network is asked"
    if "://" in origin.path:
        return f"the model lies in {origin.path}, and no network is asked"
    try:
        return read_config(Path(origin.path))
    except ModelError as error:
        return str(error).splitlines()[0]


def _trained(config: StackConfig, workload: TrainSpec) -> ModelConfig | str:
    if isinstance(workload.data, Folder):
        place = workload.data.path
        return f"vocabulary and sequence length are those of the corpus in {place}, not known here"
    data = config.workload(workload.data)
    if not isinstance(data, DataSpec):
        raise TypeError(f"workload {workload.data} writes no corpus")
    if workload.base is not None:
        return _served(config, workload.base)
    size = vocabulary(data)
    if not size:
        return "its vocabulary is that of a tokenizer that is not here"
    return ModelConfig.of(
        workload.model,
        vocab_size=size,
        max_position_embeddings=data.sequence_length,
    )
