"""From the rows of a part to those of its file: computed in batches, put back in their order."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from workloads.infer.output import Totals
from workloads.infer.plan import Batch, batches
from workloads.infer.prompts import Row
from workloads.settings import InferSettings

Prompts = Sequence[tuple[list[int], str | None]]
"""Tokens, and what is wrong with them."""

_ROW = [("file", pa.string()), ("row", pa.int64()), ("prompt_tokens", pa.int32())]
GENERATED = [
    ("text", pa.string()),
    ("tokens", pa.list_(pa.int32())),
    ("finish_reason", pa.string()),
    ("completion_tokens", pa.int32()),
]
SCORED = [("log_likelihood", pa.float64()), ("scored_tokens", pa.int32())]


class Generates(Protocol):
    """What computes a batch: see Computer."""

    def generate(self, batch: Batch, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...

    def score(self, batch: Batch) -> np.ndarray: ...


@dataclass(frozen=True)
class Work:
    """What every part is computed with."""

    settings: InferSettings
    computer: Generates
    tokenizer: Tokenizer
    ends: frozenset[int]
    widths: Sequence[int]


def answer(rows: Sequence[Row], prompts: Prompts, work: Work) -> tuple[pa.Table, Totals]:
    """One row for each of `rows`, in their order."""
    if work.settings.task == "generate":
        fields, answers = GENERATED, _generated(rows, prompts, work)
    else:
        fields, answers = SCORED, _scored(prompts, work)
    records = [
        {
            "id": row.id,
            "file": row.file,
            "row": row.row,
            "prompt_tokens": None if row.prompt is None else len(tokens),
            **answers.get(index, {}),
            "error": error,
        }
        for index, (row, (tokens, error)) in enumerate(zip(rows, prompts, strict=True))
    ]
    schema = pa.schema([*_id_field(rows), *_ROW, *fields, ("error", pa.string())])
    totals = Totals(
        rows=len(records),
        errors=Counter(error for _, error in prompts if error is not None),
        prompt_tokens=sum(len(tokens) for tokens, _ in prompts),
        completion_tokens=sum(record.get("completion_tokens", 0) for record in records),
    )
    return pa.Table.from_pylist(records, schema=schema), totals


def _generated(rows: Sequence[Row], prompts: Prompts, work: Work) -> dict[int, dict[str, Any]]:
    made: dict[int, list[int]] = {}
    for batch in _batches(prompts, work):
        seeds = np.zeros(len(batch.lengths), np.uint32)
        seeds[: len(batch.indices)] = [_seed(work.settings.seed, rows[i]) for i in batch.indices]
        tokens, counts = work.computer.generate(batch, seeds)
        for slot, index in enumerate(batch.indices):
            made[index] = tokens[slot, : counts[slot]].tolist()
    ended = {index: tokens[-1] in work.ends for index, tokens in made.items()}
    # The token that ends a text has none of its own.
    spoken = [tokens[:-1] if ended[index] else tokens for index, tokens in made.items()]
    texts = work.tokenizer.decode_batch(spoken, skip_special_tokens=True)
    return {
        index: {
            "text": text,
            "tokens": tokens,
            "finish_reason": "stop" if ended[index] else "length",
            "completion_tokens": len(tokens),
        }
        for (index, tokens), text in zip(made.items(), texts, strict=True)
    }


def _scored(prompts: Prompts, work: Work) -> dict[int, dict[str, Any]]:
    answers: dict[int, dict[str, Any]] = {}
    for batch in _batches(prompts, work):
        scores = work.computer.score(batch)
        for slot, index in enumerate(batch.indices):
            answers[index] = {
                "log_likelihood": float(scores[slot]),
                "scored_tokens": int(batch.lengths[slot]) - 1,
            }
    return answers


def _batches(prompts: Prompts, work: Work) -> Iterator[Batch]:
    sound = [None if error else tokens for tokens, error in prompts]
    return batches(sound, work.settings.batch_size, work.widths)


def _id_field(rows: Sequence[Row]) -> list[tuple[str, pa.DataType]]:
    """All ids are of one type, and all rows have one or none has."""
    if rows[0].id is None:
        return []
    return [("id", pa.string() if isinstance(rows[0].id, str) else pa.int64())]


def _seed(seed: int, row: Row) -> int:
    """A row draws the same whatever it is computed with."""
    name = f"{seed}\0{row.file}\0{row.row}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=4).digest(), "big")
