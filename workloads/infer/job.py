"""What a batch inference job is told, and whether it can work: judged before a slice is taken."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workloads.contract import SliceContract, told_devices
from workloads.data import storage
from workloads.errors import UserError
from workloads.infer.plan import Part
from workloads.infer.prompts import Columns
from workloads.model.config import ModelConfig, ModelError, read_config
from workloads.serve.text import Text
from workloads.settings import InferSettings, MeshSettings


@dataclass(frozen=True)
class Request:
    """What to make of which prompts, by which model, on what and to where."""

    contract: SliceContract
    settings: InferSettings
    model: str
    """Folder in Hugging Face's layout, seen by every host."""
    output: str

    @property
    def mesh(self) -> MeshSettings:
        return self.settings.mesh_on(self.contract.workers, self.contract.devices_per_host)

    @property
    def columns(self) -> Columns:
        return Columns(self.settings.prompt_column, self.settings.id_column)

    def check(self) -> None:
        """Raises UserError for everything in which slice, settings and model do not fit."""
        faults = [*self._shape_faults()]
        try:
            folder = _folder(self.model)
            faults += self._model_faults(read_config(folder), Text(folder))
        except ModelError as error:
            faults += (f"model: {line}" for line in str(error).splitlines())
        if faults:
            raise UserError(*faults)

    def _shape_faults(self) -> Iterator[str]:
        settings, contract, mesh = self.settings, self.contract, self.mesh
        if mesh.devices != contract.devices:
            devices = told_devices(contract.devices, contract.devices_per_chip)
            yield (
                f"mesh: {mesh} is {mesh.devices}, but slice {contract.name} has {devices}; make "
                f"the product {contract.devices}"
            )
        if settings.batch_size % mesh.data:
            lower = settings.batch_size // mesh.data * mesh.data
            yield (
                f"batch_size: {settings.batch_size} rows do not divide over mesh axis data "
                f"{mesh.data}; use {lower or mesh.data} or {lower + mesh.data}"
            )
        if settings.longest_prompt < 1:
            yield (
                f"max_tokens: {settings.max_tokens} leave no room for a prompt in "
                f"max_sequence_length {settings.max_sequence_length}; use less"
            )

    def _model_faults(self, config: ModelConfig, text: Text) -> Iterator[str]:
        for fault in config.uneven(self.mesh.axes):
            yield f"model: {fault}; change mesh"
        length = self.settings.max_sequence_length
        if length > config.max_position_embeddings:
            yield (
                f"max_sequence_length: {length} is more than the model's own limit of "
                f"{config.max_position_embeddings}; use at most that"
            )
        if text.vocab_size > config.vocab_size:
            yield (
                f"model: its tokenizer has {text.vocab_size} tokens, but its config.json "
                f"{config.vocab_size}; use the tokenizer that it was trained with"
            )


@dataclass(frozen=True)
class Job:
    """A request whose prompts are counted."""

    request: Request
    run: str
    parts: tuple[Part, ...]

    @property
    def folder(self) -> str:
        """Of the parts' files."""
        return storage.join(self.request.output, self.run)


def _folder(model: str) -> Path:
    if "://" in model:
        raise ModelError(model, ["is not a folder; mount the bucket and name the mounted path"])
    return Path(model)
