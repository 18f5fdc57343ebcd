"""The rows of the input, read in order and never all at once, and their prompts as tokens.

What is wrong with one prompt (null, empty, too long, a token that the model does not have) becomes
an error of its row, so that every row of the input is one of the output.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

import pyarrow.parquet as pq
from tokenizers import Tokenizer

from workloads.data import storage
from workloads.data.sources import suffix
from workloads.infer.plan import Piece

ROWS_AT_ONCE = 1024
"""Of a parquet file in memory."""


@dataclass(frozen=True)
class Columns:
    """Which columns are read."""

    prompt: str
    id: str | None

    @property
    def names(self) -> list[str]:
        return [*dict.fromkeys(name for name in (self.prompt, self.id) if name is not None)]


@dataclass(frozen=True)
class Row:
    """One row of the input."""

    file: str
    row: int
    """Its place in the file, from 0; blank lines of .jsonl are no rows."""
    id: str | int | None
    """None if there is no column of ids."""
    prompt: str | list[int | None] | None


class Reader:
    """Reads pieces. One that begins where the last one ended is read on from there."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._next: tuple[str, int] | None = None
        self._records: Iterator[dict[str, Any]] = iter(())

    def rows(self, pieces: Iterable[Piece]) -> list[Row]:
        """Raises EOFError if a file has become shorter since it was counted."""
        found: list[Row] = []
        for piece in pieces:
            if self._next != (piece.url, piece.first):
                self._records = _records(piece.url, piece.first, self._columns)
            records = list(islice(self._records, piece.rows))
            if len(records) < piece.rows:
                raise EOFError(f"{piece.url}: ends before row {piece.first + piece.rows}")
            self._next = (piece.url, piece.first + piece.rows)
            found += [
                Row(piece.url, number, self._id(record), record[self._columns.prompt])
                for number, record in enumerate(records, start=piece.first)
            ]
        return found

    def _id(self, record: dict[str, Any]) -> Any:
        return None if self._columns.id is None else record[self._columns.id]


def _records(url: str, first: int, columns: Columns) -> Iterator[dict[str, Any]]:
    """From row `first` of the file on."""
    fs, path = storage.filesystem(url)
    with fs.open(path, "rb") as file:
        if suffix(url) == ".jsonl":
            lines = (line for line in file if line.strip())
            yield from map(json.loads, islice(lines, first, None))
        else:
            yield from _parquet_records(pq.ParquetFile(file), first, columns)


def _parquet_records(
    table: pq.ParquetFile, first: int, columns: Columns
) -> Iterator[dict[str, Any]]:
    """Row groups that end before row `first` are not fetched."""
    sizes = (table.metadata.row_group(i).num_rows for i in range(table.num_row_groups))
    ends = list(accumulate(sizes))
    groups = [i for i, end in enumerate(ends) if end > first]
    begin = ends[groups[0] - 1] if groups and groups[0] else 0
    for batch in table.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=columns.names):
        yield from batch.slice(max(0, first - begin)).to_pylist()
        begin += len(batch)


@dataclass(frozen=True)
class Limits:
    """What a prompt may be."""

    longest: int
    """In tokens."""
    vocab_size: int


def encode(
    rows: Sequence[Row], tokenizer: Tokenizer, limits: Limits
) -> list[tuple[list[int], str | None]]:
    """Each row's tokens, and what is wrong with them, if anything."""
    texts = {i: row.prompt for i, row in enumerate(rows) if _is_text(row.prompt)}
    encoded = tokenizer.encode_batch_fast(list(texts.values()))
    ids = {i: encoding.ids for i, encoding in zip(texts, encoded, strict=True)}
    return [_judged(row.prompt, ids.get(i), limits) for i, row in enumerate(rows)]


def _judged(prompt: Any, ids: list[int] | None, limits: Limits) -> tuple[list[int], str | None]:
    if prompt is None:
        return [], "the prompt is null"
    if ids is None and isinstance(prompt, str):
        return [], "the prompt is no valid Unicode"
    tokens: list[int] = prompt if ids is None else ids
    if not tokens:
        return [], "the prompt is empty"
    if len(tokens) > limits.longest:
        return tokens, f"the prompt is longer than {limits.longest} tokens"
    if not all(token is not None and 0 <= token < limits.vocab_size for token in tokens):
        return tokens, f"a token of the prompt is none of the model's {limits.vocab_size}"
    return tokens, None


def _is_text(prompt: Any) -> bool:
    """JSON can spell halves of surrogate pairs, which no tokenizer takes."""
    return isinstance(prompt, str) and is_unicode(prompt)


def is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
