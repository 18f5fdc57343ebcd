"""What a run is, on disk: what it was started with (`run.json`) and how it ended (`result.json`).

An output belongs to one run: the same settings and corpus go on with it, or find it finished;
anything else is refused, for it would mix two models in one folder.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from workloads.data import storage
from workloads.errors import UserError
from workloads.settings import TrainSettings

RUN, RESULT = "run.json", "result.json"
BEGAN = "began_unix_s"
CHECKPOINTS, EXPORT, ADAPTER = "checkpoints", "export", "adapter"


class Result(BaseModel):
    """How a finished run ended. Losses and entropies in nats a token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int
    parameters: int
    held_out_loss: float
    unigram_entropy: float
    tokens_per_s: float | None
    """Training throughput of all devices: the median of what the log lines say, compilation
    apart. None if the run was too short to tell."""
    utilisation: float | None = None
    """Part of the chips' peak that went into the model (MFU) at that throughput. None as above,
    and on devices that are no TPU."""
    goodput: float | None = None
    """Part of the time since the run was first started that went into steps whose result was kept:
    not into waiting, compiling, restoring, evaluating, saving, or steps that were lost."""
    waited: float | None = None
    """Part of the steps' time in which they waited for data. None as above."""
    wall_s: dict[str, float]
    """By phase, of the process that finished the run."""


@dataclass(frozen=True)
class Stopped:
    """How an attempt ends before the run does: it can go on from here."""

    step: int
    """The last one, which is saved."""
    grows: bool = False
    """Whether that is for a slice that has come; else for a stop notice."""


def claim(
    output: str, settings: TrainSettings, corpus_digest: str, base: str | None = None
) -> Result | None:
    """Makes `output` this run's; its result if it is already finished.

    `base`: the digest of the checkpoint that it starts from, if there is one. Raises UserError that
    names every field in which the run there is another one.
    """
    ours = _identity(settings, corpus_digest, base)
    theirs = _read(storage.join(output, RUN))
    if theirs is None:
        record = {BEGAN: time.time(), **ours}
        storage.write_atomically(storage.join(output, RUN), json.dumps(record, indent=2))
        return None
    began = theirs.pop(BEGAN, None)
    if faults := [
        f"{name} is {ours.get(name)!r}, but the run in {output} has {theirs.get(name)!r}; "
        "set it back, or choose another output"
        for name in sorted(ours | theirs)
        if ours.get(name) != theirs.get(name)
    ]:
        raise UserError(*faults)
    try:
        raw = _read(storage.join(output, RESULT))
        if raw is not None:
            return Result.model_validate(raw)
    except ValidationError:
        raise UserError(
            f"{storage.join(output, RESULT)}: not a result of this version; choose another output"
        ) from None
    if not isinstance(began, float):
        where = storage.join(output, RUN)
        raise UserError(f"{where}: not a run of this version; choose another output")
    return None


def began_unix_s(output: str) -> float:
    """When the run in `output` was first started. Raises KeyError if none was claimed."""
    return (_read(storage.join(output, RUN)) or {})[BEGAN]


def finish(output: str, result: Result) -> None:
    storage.write_atomically(storage.join(output, RESULT), result.model_dump_json(indent=2))


def _identity(settings: TrainSettings, corpus_digest: str, base: str | None) -> dict[str, Any]:
    """Flat, with JSON's types, so that it compares with what was read."""
    raw = settings.learned()
    parts = {part: raw.pop(part, {}) for part in ("model", "lora")}
    if base is not None:
        parts["model"] = {"base": base}  # which decides its sizes
    flat = {f"{part}.{name}": value for part in parts for name, value in parts[part].items()}
    return {"corpus": corpus_digest, **flat, **raw}


def _read(url: str) -> dict[str, Any] | None:
    try:
        raw = json.loads(storage.read_text(url))
    except FileNotFoundError:
        return None
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        raise UserError(f"{url}: not a JSON object; choose another output")
    return raw
