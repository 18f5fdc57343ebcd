"""Which rows make a part, and which of a part's prompts make a batch. Pure: no files, no JAX.

A part is a file of the output, and what a restart skips or computes anew as a whole. A batch has
always the same number of rows, because its shape is compiled and every host has its equal share of
it; where prompts run out the rest is padding, and a mask tells which rows are real.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class File:
    """One input file."""

    url: str
    rows: int
    digest: str
    """Of its bytes."""


@dataclass(frozen=True)
class Piece:
    """Rows [first, first + rows) of a file."""

    url: str
    first: int
    rows: int


@dataclass(frozen=True)
class Part:
    number: int
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


def parts(files: Sequence[File], rows_per_part: int) -> tuple[Part, ...]:
    """All rows of all files in order, each once, in parts of at most `rows_per_part`.

    A long file is cut into whole parts, and what is left of it goes with the next files' rows.
    """
    groups: list[list[Piece]] = []
    room = 0
    for piece in (piece for file in files for piece in _pieces(file, rows_per_part)):
        if piece.rows > room:
            groups.append([])
            room = rows_per_part
        groups[-1].append(piece)
        room -= piece.rows
    return tuple(Part(number, tuple(group)) for number, group in enumerate(groups))


def _pieces(file: File, rows_per_part: int) -> Iterator[Piece]:
    for first in range(0, file.rows, rows_per_part):
        yield Piece(file.url, first, min(rows_per_part, file.rows - first))


@dataclass(frozen=True)
class Batch:
    """Prompts that are computed together, padded to one shape."""

    indices: tuple[int, ...]
    """Which prompts its real rows are; these come first."""
    tokens: np.ndarray
    """(batch_size, width) int32, padded on the right."""
    lengths: np.ndarray
    """(batch_size,) int32, 1 in rows of padding: a row without any token has no last one."""

    @property
    def mask(self) -> np.ndarray:
        """(batch_size,) bool: which rows are real."""
        return np.arange(len(self.lengths)) < len(self.indices)


def batches(
    prompts: Sequence[Sequence[int] | None], batch_size: int, widths: Sequence[int]
) -> Iterator[Batch]:
    """Every prompt that is not None, once: the shortest first, so that little is padding.

    `widths` are those of the compiled programs, rising; the last has room for any prompt.
    """
    tokens = {index: prompt for index, prompt in enumerate(prompts) if prompt is not None}
    order = sorted(tokens, key=lambda index: len(tokens[index]))
    for start in range(0, len(order), batch_size):
        indices = tuple(order[start : start + batch_size])
        longest = len(tokens[indices[-1]])
        padded = np.zeros((batch_size, next(w for w in widths if w >= longest)), np.int32)
        lengths = np.ones(batch_size, np.int32)
        for row, index in enumerate(indices):
            lengths[row] = len(tokens[index])
            padded[row, : lengths[row]] = tokens[index]
        yield Batch(indices, padded, lengths)
