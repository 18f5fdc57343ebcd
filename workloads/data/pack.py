"""Documents to packed rows: the two passes over a shard that run on the cluster.

A row is `sequence_length + 1` tokens: inputs are all but the last, targets all but the first.
Documents follow one another, each ended by a token of its own; what does not fill the last row of
a shard is left out, and counted.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.data import sources, split, storage, tokenizer

MAX_FAULTS = 20
"""Of one shard; enough to see what is wrong with a folder."""
ROWS_PER_GROUP = 4096
"""Of a parquet row group: what training reads, and shuffles, at once."""
DOCUMENTS_AT_ONCE = 256
SIDES = ("train", "held_out")


@dataclass
class Scan:
    """What a shard holds."""

    documents: int = 0
    nulls: int = 0
    empty: int = 0
    smallest_key: int = split.KEYS
    largest_key: int = -1
    sample: list[tuple[int, str]] = field(default_factory=list)
    """Keys and texts to train a tokenizer on."""
    faults: list[str] = field(default_factory=list)


def scan(shard: tuple[sources.Source, ...], column: str, seed: int, sampled: float) -> Scan:
    """Reads all of a shard, and keeps about the part `sampled` of its texts."""
    result = Scan()
    for item in chain.from_iterable(sources.read(source, column) for source in shard):
        match item:
            case sources.Fault(message):
                result.faults.append(message)
                if len(result.faults) == MAX_FAULTS:
                    return result
            case sources.Null():
                result.nulls += 1
            case sources.Document(""):
                result.empty += 1
            case sources.Document(text):
                key = split.key(text, seed)
                result.documents += 1
                result.smallest_key = min(result.smallest_key, key)
                result.largest_key = max(result.largest_key, key)
                # A key of its own: the split's would sample one side before the other.
                if split.key(text, seed + 1) < sampled * split.KEYS:
                    result.sample.append((key, text))
    return result


@dataclass
class Counts:
    """What one side of a shard came to."""

    documents: int
    text_bytes: int
    tokens: int
    rows: int
    left_out_tokens: int
    target_counts: np.ndarray
    """How often each token is a target: int64, (vocab_size,)."""
    digest: str
    """Of the rows."""


class Side:
    """One side of one shard: packs token ids into rows and writes them as they fill."""

    def __init__(self, url: str, width: int, vocab_size: int) -> None:
        self._url = url
        self._width = width
        self._counts = Counts(0, 0, 0, 0, 0, np.zeros(vocab_size, np.int64), "")
        self._digest = hashlib.blake2b(digest_size=16)
        self._pending: list[np.ndarray] = []
        self._pending_tokens = 0
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, text: str, ids: Sequence[int]) -> None:
        self._counts.documents += 1
        self._counts.text_bytes += len(text.encode(errors="surrogatepass"))
        self._counts.tokens += len(ids)
        self._pending.append(np.asarray(ids, np.int32))
        self._pending_tokens += len(ids)
        group = ROWS_PER_GROUP * self._width
        if self._pending_tokens >= group:
            self._write(self._pending_tokens // group * ROWS_PER_GROUP)

    def close(self) -> Counts:
        self._write(self._pending_tokens // self._width)
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()
        self._counts.left_out_tokens = self._pending_tokens
        self._counts.digest = self._digest.hexdigest()
        return self._counts

    def _write(self, rows: int) -> None:
        if rows == 0:
            return
        tokens, cut = np.concatenate(self._pending), rows * self._width
        block, rest = tokens[:cut].reshape(rows, self._width), tokens[cut:]
        self._pending, self._pending_tokens = [rest], len(rest)
        counts = self._counts
        counts.rows += rows
        counts.target_counts += np.bincount(
            block[:, 1:].ravel(), minlength=len(counts.target_counts)
        )
        self._digest.update(block.tobytes())
        column = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), self._width)
        table = pa.table({"tokens": column})
        if self._writer is None:
            fs, path = storage.filesystem(self._url)
            fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._file = cast(IO[bytes], fs.open(path, "wb"))
            self._writer = pq.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table, row_group_size=ROWS_PER_GROUP)


@dataclass(frozen=True)
class Packing:
    """What every shard is packed with."""

    output: str
    column: str
    seed: int
    threshold: int
    sequence_length: int
    tokenizer_json: str


def pack(number: int, shard: tuple[sources.Source, ...], how: Packing) -> dict[str, Counts]:
    """Writes `<side>/part-<number>.parquet` of each side; the counts of each side by its name."""
    encoder = tokenizer.for_documents(how.tokenizer_json)
    end = encoder.get_vocab()[tokenizer.END_OF_TEXT]
    width, vocab_size = how.sequence_length + 1, tokenizer.size(encoder)
    sides = {
        side: Side(storage.join(how.output, part_name(side, number)), width, vocab_size)
        for side in SIDES
    }
    for texts in _batches(_texts(shard, how.column)):
        for text, encoding in zip(texts, encoder.encode_batch_fast(texts), strict=True):
            held_out = split.key(text, how.seed) < how.threshold
            sides["held_out" if held_out else "train"].add(text, [*encoding.ids, end])
    return {name: side.close() for name, side in sides.items()}


def part_name(side: str, number: int) -> str:
    return f"{side}/part-{number:05d}.parquet"


def _texts(shard: tuple[sources.Source, ...], column: str) -> Iterator[str]:
    items = chain.from_iterable(sources.read(source, column) for source in shard)
    return (item.text for item in items if isinstance(item, sources.Document) and item.text)


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(texts, DOCUMENTS_AT_ONCE)):
        yield batch
