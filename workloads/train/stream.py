"""The order in which a run sees its corpus, as Ray datasets that iter_jax_batches can consume.

Training reads one endless stream: the corpus again and again, each time in another order that the
seed and the epoch give. A step's batch is the next `global_batch` places of it, on however many
hosts it is computed. Batches cross from one epoch to the next, so no row is ever left out unless
the settings say so, and any step can be started from without reading the steps before it. Rows are
shuffled within parquet row groups and the groups among themselves: a global shuffle would need
random access to storage.

Ray Data hands blocks to hosts in turn as long as order is preserved and blocks are equally long.
So a block is the rows of one host for a chunk of steps, and the blocks of one chunk are equal. For
that each host reads all of a chunk's row groups, of which it keeps its part: 4 bytes for a token of
the whole run, which at a million tokens a second are 4 MB/s a host.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from workloads.data import storage
from workloads.data.corpus import COLUMN, Corpus, Split
from workloads.settings import RaggedBatch

PADDING = -1
"""In all places of a row that is none. No token has this id."""
ROWS_PER_BLOCK = 1024
"""About: a block is a task, and a task should outlast its scheduling."""


@dataclass(frozen=True)
class Batches:
    """How rows meet steps: each of `hosts` takes its equal part of `global_batch` rows."""

    global_batch: int
    hosts: int
    ragged: RaggedBatch = "carry"

    def epoch_rows(self, rows: int) -> int:
        """Places in the stream that an epoch over so many rows takes."""
        match self.ragged:
            case "drop":
                return rows // self.global_batch * self.global_batch
            case "pad":
                return -(-rows // self.global_batch) * self.global_batch
            case "carry" | "raise":
                return rows

    def told(self, rows: int, steps: int) -> str:
        """What of a corpus of so many rows a run of so many steps sees."""
        places, taken = self.epoch_rows(rows), steps * self.global_batch
        if taken < places:
            seen = min(taken, rows)
            return f"{seen:,} of {rows:,} rows are seen, each once; {rows - seen:,} are left out"
        line = f"{taken / places:.2f} epochs of {rows:,} rows"
        if places < rows:
            return f"{line}; each leaves out {rows - places:,}, which fill no batch"
        if places > rows:
            return f"{line}; each is filled up by {places - rows:,} rows that count for nothing"
        return f"{line}; none is left out"

    @property
    def host_batch(self) -> int:
        return self.global_batch // self.hosts

    @property
    def steps_per_chunk(self) -> int:
        return max(1, ROWS_PER_BLOCK // self.host_batch)


@dataclass(frozen=True)
class Block:
    """The rows of one host for some steps."""

    steps: range
    host: int


def blocks(batches: Batches, steps: range) -> list[Block]:
    """Every host's blocks for `steps`, hosts in turn."""
    size = batches.steps_per_chunk
    chunks = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [Block(chunk, host) for chunk in chunks for host in range(batches.hosts)]


@dataclass(frozen=True)
class Stretch:
    """Rows [first, last) of a row group, after the group's own shuffle if there is one."""

    position: int
    """Of its first row in the stream."""
    epoch: int
    file: str
    group: int
    first: int
    last: int


class Order:
    """Where the stream's rows lie: epoch after epoch over the row groups of one split."""

    def __init__(
        self, split: Split, rows_per_group: int, seed: int | None, epoch_rows: int
    ) -> None:
        """With `seed` None every epoch has the order of the files.

        An epoch takes `epoch_rows` places: the last of its rows are left out if these are fewer,
        and the last places stay empty if they are more.
        """
        self._epoch_rows = epoch_rows
        self._seed = seed
        self._groups = [
            (part.file, group, min(rows_per_group, part.rows - group * rows_per_group))
            for part in split.parts
            for group in range(-(-part.rows // rows_per_group))
        ]

    def stretches(self, position: int, rows: int) -> Iterator[Stretch]:
        """What fills the `rows` places of the stream from `position` on."""
        size = self._epoch_rows
        for epoch in range(position // size, -(-(position + rows) // size)):
            start, stop = epoch * size, min(position + rows, (epoch + 1) * size)
            for file, group, length in self._epoch(epoch):
                first, last = max(position - start, 0), min(stop - start, length)
                if first < last:
                    yield Stretch(start + first, epoch, file, group, first, last)
                start += length

    def _epoch(self, epoch: int) -> list[tuple[str, int, int]]:
        if self._seed is None:
            return self._groups
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._groups))
        return [self._groups[i] for i in order]


class Reader:
    """Blocks to rows: runs in Ray Data's tasks."""

    def __init__(
        self, url: str, corpus: Corpus, split: Split, seed: int | None, batches: Batches
    ) -> None:
        self._url = url
        self._digest = corpus.digest
        self._batches = batches
        epoch_rows = batches.epoch_rows(split.rows)
        self._order = Order(split, corpus.rows_per_group, seed, epoch_rows)
        self._seed = seed
        self._width = corpus.sequence_length + 1

    def rows(self, block: Block) -> np.ndarray:
        """(rows, sequence_length + 1) int32, step by step; those of no row hold PADDING."""
        batch, part = self._batches.global_batch, self._batches.host_batch
        first, count = block.steps.start * batch, len(block.steps)
        tokens = np.full((count * part, self._width), PADDING, np.int32)
        for stretch in self._order.stretches(first, count * batch):
            places = stretch.position - first + np.arange(stretch.last - stretch.first)
            step, place = np.divmod(places, batch)
            ours = place // part == block.host
            if ours.any():
                tokens[(step * part + place % part)[ours]] = self._read(stretch)[ours]
        return tokens

    def _read(self, stretch: Stretch) -> np.ndarray:
        url = storage.join(self._url, stretch.file)
        rows = _row_group(url, stretch.group, self._digest)
        if self._seed is None:
            return rows[stretch.first : stretch.last]
        key = [self._seed, stretch.epoch, *stretch.file.encode(), stretch.group]
        order = np.random.default_rng(key).permutation(len(rows))
        return rows[order[stretch.first : stretch.last]]


@lru_cache(maxsize=4)
def _row_group(url: str, group: int, digest: str) -> np.ndarray:
    """(rows, tokens) int32. The corpus's digest is part of the key: a file may be written anew."""
    del digest
    fs, path = storage.filesystem(url)
    with fs.open(path, "rb") as file:
        column = pq.ParquetFile(file).read_row_group(group, columns=[COLUMN]).column(0)
    rows = column.combine_chunks()
    return rows.flatten().to_numpy().reshape(len(rows), -1)


def training(url: str, corpus: Corpus, batches: Batches, seed: int, steps: range) -> Any:
    """A Ray dataset of the rows of `steps`: `tokens` and the `step` they are for."""
    todo = blocks(batches, steps)
    reader = Reader(url, corpus, corpus.train, seed, batches)

    def read(block: Block) -> dict[str, np.ndarray]:
        steps = np.repeat(np.asarray(block.steps, np.int32), batches.host_batch)
        return {"tokens": reader.rows(block), "step": steps}

    return _dataset(todo, read)


def held_out(url: str, corpus: Corpus, batches: Batches) -> Any:
    """A Ray dataset of all held-out rows once: `tokens`, and `weight` 1, or 0 for padding."""
    padded = replace(batches, ragged="pad")
    steps = padded.epoch_rows(corpus.held_out.rows) // padded.global_batch
    reader = Reader(url, corpus, corpus.held_out, None, padded)

    def read(block: Block) -> dict[str, np.ndarray]:
        tokens = reader.rows(block)
        weight = (tokens[:, 0] != PADDING).astype(np.float32)
        return {"tokens": np.maximum(tokens, 0), "weight": weight}

    return _dataset(blocks(padded, range(steps)), read)


def _dataset(todo: list[Block], read: Callable[[Block], dict[str, np.ndarray]]) -> Any:
    import ray.data

    def task(batch: Any) -> dict[str, np.ndarray]:
        (index,) = batch["id"]
        return read(todo[index])

    ray.data.DataContext.get_current().enable_progress_bars = False  # ours are the log lines
    count = len(todo)
    return ray.data.range(count, override_num_blocks=count).map_batches(task, batch_size=None)
