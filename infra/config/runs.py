"""Which training run a declaration means."""

import hashlib
import json
from typing import Any

from infra.config.load import StackConfig
from infra.config.models import DataSpec, Folder, TrainSpec

_LENGTH = 12


def run_id(config: StackConfig, workload: TrainSpec) -> str:
    """The same for what learns the same from the same data, however it is carried out.

    Raises TypeError if the workload reads what no data workload writes; a sound stack never does.
    """
    source = workload.data
    corpus = source if isinstance(source, Folder) else config.workload(source)
    packed_with = corpus.tokenizer if isinstance(corpus, DataSpec) else None
    if isinstance(corpus, DataSpec):
        corpus = corpus.settings()
    elif not isinstance(corpus, Folder):
        raise TypeError(f"workload {source} writes no corpus")
    learned: list[Any] = [workload.settings().learned(), corpus.model_dump(mode="json")]
    if packed_with is not None:
        learned.append({"tokenizer": packed_with.path})
    if workload.base is not None:
        learned.append({"base": _base(config, workload.base)})
    return hashlib.sha256(json.dumps(learned, sort_keys=True).encode()).hexdigest()[:_LENGTH]


def _base(config: StackConfig, base: str | Folder) -> str:
    if isinstance(base, Folder):
        return base.path
    run = config.workload(base)
    if not isinstance(run, TrainSpec):
        raise TypeError(f"workload {base} trains no model")
    return run_id(config, run)
