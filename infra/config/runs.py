"""Which training run a declaration means."""

import hashlib
import json

from infra.config.load import StackConfig
from infra.config.models import DataSpec, Folder, TrainSpec

_LENGTH = 12


def run_id(config: StackConfig, workload: TrainSpec) -> str:
    """The same for what learns the same from the same data, however it is carried out.

    Raises TypeError if the workload reads what no data workload writes; a sound stack never does.
    """
    source = workload.data
    corpus = source if isinstance(source, Folder) else config.workload(source)
    if isinstance(corpus, DataSpec):
        corpus = corpus.settings()
    elif not isinstance(corpus, Folder):
        raise TypeError(f"workload {source} writes no corpus")
    learned = (workload.settings().learned(), corpus.model_dump(mode="json"))
    return hashlib.sha256(json.dumps(learned, sort_keys=True).encode()).hexdigest()[:_LENGTH]
