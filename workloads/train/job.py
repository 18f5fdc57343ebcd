"""What a training job is told, and whether it can work: judged before any slice is taken."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import Tokenizer

from workloads.contract import SliceContract, told_devices
from workloads.data import storage
from workloads.data.corpus import TOKENIZER, Corpus
from workloads.data.tokenizer import END_OF_MESSAGE, END_OF_TEXT
from workloads.errors import UserError
from workloads.model.config import ModelConfig, ModelError, fingerprint, read_config
from workloads.settings import TrainSettings
from workloads.train.base import faults as base_faults
from workloads.train.choices import settings_on
from workloads.train.stream import Batches


@dataclass(frozen=True)
class Job:
    """What to train, on what, from where and to where."""

    contract: SliceContract
    settings: TrainSettings
    corpus: Corpus
    corpus_url: str
    output: str
    base: Path | None = None
    """Checkpoint in Hugging Face's layout that training starts from, seen by every host."""
    most_slices: int | None = None
    """Of an elastic run, which may have fewer. It takes more as soon as they are there."""

    @property
    def batches(self) -> Batches:
        settings = self.settings
        return Batches(settings.global_batch, self.contract.workers, settings.ragged_batch)

    @property
    def lacks_slices(self) -> bool:
        return self.most_slices is not None and self.contract.slices < self.most_slices

    def on(self, contract: SliceContract) -> "Job":
        """The same run on another slice. Raises UserError if that cannot be."""
        return replace(self, contract=contract, settings=settings_on(self.settings, contract))

    def url(self, *parts: str) -> str:
        return storage.join(self.output, *parts)

    def tokenizer_json(self) -> str:
        return storage.read_text(storage.join(self.corpus_url, TOKENIZER))

    def model_config(self) -> ModelConfig:
        """Raises ModelError."""
        if self.base is not None:
            return read_config(self.base)
        vocabulary = Tokenizer.from_str(self.tokenizer_json()).get_vocab()
        ends = [vocabulary[name] for name in (END_OF_TEXT, END_OF_MESSAGE) if name in vocabulary]
        return ModelConfig.of(
            self.settings.model,
            vocab_size=self.corpus.vocab_size,
            max_position_embeddings=self.corpus.sequence_length,
            eos_token_ids=tuple(ends),
            pad_token_id=vocabulary[END_OF_TEXT],
        )

    def base_digest(self) -> str | None:
        """Of the checkpoint that training starts from, without reading its weights."""
        if self.base is None:
            return None
        return hashlib.sha256(json.dumps(fingerprint(self.base)).encode()).hexdigest()[:32]

    def check(self) -> None:
        """Raises UserError for everything in which slice, settings and corpus do not fit."""
        if faults := list(self._faults()):
            raise UserError(*faults)

    def _faults(self) -> Iterator[str]:
        settings, contract, mesh = self.settings, self.contract, self.settings.mesh
        devices = told_devices(contract.devices, contract.devices_per_chip)
        if mesh.devices != contract.devices:
            yield (
                f"mesh: {mesh} is {mesh.devices}, but slice {contract.name} has {devices}; make "
                f"the product {contract.devices}"
            )
        if mesh.data % contract.slices:
            yield (
                f"mesh.data: {mesh.data} would spread one copy of the model over several of the "
                f"{contract.slices} slices; use a multiple of {contract.slices}"
            )
        if settings.global_batch % contract.devices:
            lower = settings.global_batch // contract.devices * contract.devices
            yield (
                f"global_batch: {settings.global_batch} rows do not divide over {devices}; use "
                f"{lower or contract.devices} or {lower + contract.devices}"
            )
        parts = settings.gradient_accumulation_steps * mesh.batch_parts
        if settings.global_batch % parts:
            yield (
                f"gradient_accumulation_steps: {settings.gradient_accumulation_steps} do not cut "
                f"{settings.global_batch} rows into equal parts for {mesh.batch_parts} devices "
                "(data x fsdp); change one of them"
            )
        yield from self._ragged_faults()
        if settings.profile and settings.profile.traced[-1] > settings.steps:
            yield (
                f"profile: step {settings.profile.traced[-1]} is to be traced, and there are "
                f"{settings.steps}; trace earlier or fewer steps"
            )
        if settings.warmup_steps >= settings.steps:
            yield (
                f"warmup_steps: {settings.warmup_steps} leave nothing of {settings.steps} steps; "
                "use less than steps"
            )
        yield from self._model_faults()

    def _model_faults(self) -> Iterator[str]:
        part = "model" if self.base is None else "base"
        if self.base is None and self.settings.lora is not None:
            yield "lora: adapters are of no use beside random weights; name a base"
        try:
            config = self.model_config()
        except ModelError as error:
            lines = error.faults if self.base is None else str(error).splitlines()
            yield from (f"{part}: {line}; change the {part}" for line in lines)
            return
        for fault in config.uneven(self.settings.mesh.axes):
            yield f"{part}: {fault}; change one of the two"
        if self.base is not None:
            told = self.settings, self.corpus, self.tokenizer_json()
            yield from base_faults(*told, self.base, config)

    def _ragged_faults(self) -> Iterator[str]:
        rows, batch, ragged = (
            self.corpus.train.rows,
            self.settings.global_batch,
            self.batches.ragged,
        )
        if ragged == "raise" and rows % batch:
            yield (
                f"ragged_batch: {rows} rows of training text are no whole number of batches of "
                f"{batch}, {rows % batch} are left; use carry, drop or pad, or another global_batch"
            )
        if ragged == "drop" and rows < batch:
            yield (
                f"ragged_batch: drop leaves nothing of {rows} rows, which fill no batch of {batch};"
                " use carry or pad, or a smaller global_batch"
            )
