"""Runs that start from a checkpoint, and what packs their text: whether the three agree.

Only what lies here is read. A checkpoint in a bucket is judged by the job itself, before it takes
its slice.
"""

from collections.abc import Iterator
from pathlib import Path

from infra.config.entries import Entries
from infra.config.model_files import TOKENIZER
from infra.config.models import DataSpec, Folder, TrainSpec
from infra.config.parse import Scope
from infra.errors import Problem
from workloads.model.config import ModelConfig, ModelError, read_config


def faults(entries: Entries) -> Iterator[Problem]:
    for where, workload in entries.workloads.items():
        if isinstance(workload, DataSpec):
            yield from _tokenizer(where, workload, entries.scope)
    for where, trainer in entries.trained.items():
        if trainer.base is None:
            yield from _lora(where, trainer)
            continue
        yield from _model(where, trainer)
        yield from _above(where, trainer, entries)
        data = entries.data_of(trainer)
        if data and isinstance(trainer.base, Folder):
            yield from _packed_alike(where, trainer.base, data, entries.scope)
            if "://" not in trainer.base.path:
                yield from _readable(where, trainer.base, data, entries.scope)


def _tokenizer(where: str, data: DataSpec, scope: Scope) -> Iterator[Problem]:
    if data.tokenizer is None:
        return
    path = data.tokenizer.path
    if "vocab_size" in data.model_fields_set:
        yield scope.problem(
            f"{where}.vocab_size",
            data.vocab_size,
            "is given beside tokenizer, which decides it",
            "leave one of them out",
        )
    if "://" not in path and not (Path(path) / TOKENIZER).is_file():
        what, fix = f"holds no {TOKENIZER}", "name the folder of a model or of a corpus"
        yield scope.problem(f"{where}.tokenizer.path", path, what, fix)


def _lora(where: str, trainer: TrainSpec) -> Iterator[Problem]:
    if trainer.lora is not None:
        what = "trains adapters beside a model, and without base that is random weights"
        yield Problem(f"{where}.lora", what, "name what to start from as base, or leave lora out")


def _model(where: str, trainer: TrainSpec) -> Iterator[Problem]:
    if "model" in trainer.model_fields_set:
        what = "is given beside base, whose own sizes are taken"
        yield Problem(f"{where}.model", what, "leave one of them out")


def _above(where: str, trainer: TrainSpec, entries: Entries) -> Iterator[Problem]:
    """Runs are made in the order of the file, so none can wait for itself."""
    declared = [name for _, name in entries.names("workloads", "train")]
    if isinstance(trainer.base, str) and trainer.base in declared:
        own = declared.index(trainer.name)
        if declared.index(trainer.base) >= own:
            what = "is not declared before this run, which starts from it"
            yield entries.scope.problem(f"{where}.base", trainer.base, what, "put it above")


def _packed_alike(where: str, base: Folder, data: DataSpec, scope: Scope) -> Iterator[Problem]:
    """Token ids mean something to one model alone."""
    if data.tokenizer is None:
        yield Problem(
            f"{where}.data",
            f"workload {scope.quote(data.name)} trains a tokenizer of its own, of which the model "
            f"in {scope.show(base.path)} knows nothing",
            f"give it tokenizer: {{path: {scope.show(base.path)}}}",
        )
        return
    ours, theirs = (_text(folder) for folder in (data.tokenizer, base))
    if ours is not None and theirs is not None and ours != theirs:
        yield Problem(
            f"{where}.data",
            f"workload {scope.quote(data.name)} packs with the tokenizer in "
            f"{scope.show(data.tokenizer.path)}, which is not that in {scope.show(base.path)}",
            "use one for both",
        )


def _readable(where: str, base: Folder, data: DataSpec, scope: Scope) -> Iterator[Problem]:
    try:
        config = read_config(Path(base.path))
    except ModelError as error:
        for line in str(error).splitlines():
            what = f"holds no model that can be trained: {scope.show(line)}"
            yield Problem(f"{where}.base.path", what, "name the folder of a Qwen3 checkpoint")
        return
    yield from _longest(where, config, data, scope)


def _longest(where: str, config: ModelConfig, data: DataSpec, scope: Scope) -> Iterator[Problem]:
    if data.sequence_length > config.max_position_embeddings:
        yield Problem(
            f"{where}.data",
            f"sequences of {scope.quote(data.sequence_length)} tokens are longer than the "
            f"{config.max_position_embeddings} that the model is made for",
            "lower sequence_length to that",
        )


def _text(folder: Folder) -> bytes | None:
    """None for a tokenizer that is not here."""
    if "://" in folder.path:
        return None
    try:
        return (Path(folder.path) / TOKENIZER).read_bytes()
    except OSError:
        return None
