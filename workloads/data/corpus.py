"""The manifest of a prepared corpus: what `corpus.json` says, and the numbers it is judged by."""

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from workloads.data import storage
from workloads.errors import UserError

MANIFEST = "corpus.json"
TOKENIZER = "tokenizer.json"
COLUMN = "tokens"
"""The one column of the parquet files: a list of `sequence_length + 1` int32."""


class Manifest(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(Manifest):
    """One parquet file."""

    file: str
    """Relative to the corpus."""
    rows: int


class Split(Manifest):
    """Training or held-out text."""

    documents: int
    text_bytes: int
    tokens: int
    """Those of the rows, and those left out because they do not fill a row."""
    rows: int
    left_out_tokens: int
    parts: tuple[Part, ...]


class Corpus(Manifest):
    """Written last: where there is a manifest, the corpus is whole."""

    digest: str
    """Of the tokenizer and of all rows."""
    settings_digest: str
    vocab_size: int
    sequence_length: int
    rows_per_group: int
    """Rows of a parquet row group, but for the last of a file."""
    train: Split
    held_out: Split
    bytes_per_token: float
    """On held-out text."""
    unigram_entropy: float
    """Nats a token: the loss on held-out targets of knowing only how often each token is a
    target in training (one added to each count)."""
    held_out_entropy: float
    """Nats a token: entropy of the held-out targets' own frequencies; no unigram does better."""


def load(url: str) -> Corpus:
    """Raises UserError if `url` holds no finished corpus."""
    where = storage.join(url, MANIFEST)
    try:
        return Corpus.model_validate_json(storage.read_text(where))
    except FileNotFoundError:
        fault = f"{where}: no such file, so there is no finished corpus"
    except ValidationError as error:
        fault = f"{where}: not a manifest of this version ({error.error_count()} faults)"
    raise UserError(f"{fault}; run the data job into {url}")


def cross_entropy(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Nats a token of `targets` under the distribution that `predicted` counts give.

    Both are counts by token, (vocab_size,). One is added to each predicted count, so that a token
    never seen in training costs much, not infinitely much.
    """
    smoothed = predicted + 1
    log_p = np.log(smoothed) - np.log(smoothed.sum())
    return float(-(targets * log_p).sum() / targets.sum())


def entropy(targets: np.ndarray) -> float:
    """Nats a token of the frequencies of `targets`, counts by token: (vocab_size,)."""
    p = targets[targets > 0] / targets.sum()
    return float(-(p * np.log(p)).sum())
