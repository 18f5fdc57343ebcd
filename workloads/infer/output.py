"""What a run writes: a parquet file for each part, and last, over all of them, `result.json`.

A run is named by a digest of all that decides its output, and has a folder of that name: other
prompts, settings or weights write beside it, and never over it. A part's file appears whole or not
at all, under a name that its number gives, so whoever computes it once more replaces it by the
same. `result.json` names the files of one whole run: who reads those sees every row once.
"""

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from workloads.data import storage
from workloads.errors import UserError
from workloads.infer.plan import File, Part
from workloads.settings import InferSettings

RESULT = "result.json"
FORMAT = 1
"""Of the output: another one is another run."""
TOTALS = b"raytpu.totals"
"""Key of a parquet file's metadata."""
_PART = re.compile(r"part-(\d+)\.parquet")
_READERS = 16


class Totals(BaseModel):
    """Sums over the rows of a part, kept in its file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    errors: dict[str, int]
    """Rows by what is wrong with their prompt."""
    prompt_tokens: int
    completion_tokens: int


class Written(BaseModel):
    """One file of the output."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    """Relative to `result.json`."""
    rows: int


class Result(BaseModel):
    """A finished run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    rows: int
    """Of the output, as many as of the input."""
    rows_with_errors: int
    errors: dict[str, int]
    prompt_tokens: int
    completion_tokens: int
    rows_per_s: float | None
    """Of the attempt that finished the run, compilation apart. None if it was too short to tell."""
    files: tuple[Written, ...]


def run_id(settings: InferSettings, files: Sequence[File], model: Any) -> str:
    """The same for what gives the same output. `model` identifies the weights, as JSON."""
    inputs = [(file.url, file.rows, file.digest) for file in files]
    decisive = [FORMAT, settings.decisive(), inputs, model]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


def part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def finished(folder: str) -> set[int]:
    """Numbers of the parts that are there."""
    fs, path = storage.filesystem(folder)
    names = (
        str(name).rsplit("/", 1)[-1]
        for name in (fs.ls(path, detail=False) if fs.exists(path) else ())
    )
    return {int(match[1]) for name in names if (match := _PART.fullmatch(name))}


def write_part(folder: str, part: Part, table: pa.Table, totals: Totals) -> None:
    """Raises ValueError for a table that has not the part's rows."""
    if table.num_rows != part.rows:
        raise ValueError(f"part {part.number} has {part.rows} rows, not {table.num_rows}")
    marked = table.replace_schema_metadata({TOTALS: totals.model_dump_json()})
    buffer = io.BytesIO()  # a file closed by an error would be taken for a whole one
    pq.write_table(marked, buffer)
    storage.write_atomically(storage.join(folder, part_name(part.number)), buffer.getvalue())


def read_result(output: str) -> Result | None:
    """That of the newest finished run, of whatever settings."""
    try:
        return Result.model_validate_json(storage.read_text(storage.join(output, RESULT)))
    except (FileNotFoundError, ValidationError):
        return None


def commit(output: str, run: str, parts: Iterable[Part], rows_per_s: float | None) -> Result:
    """Reads what the parts' files say of themselves, and writes the result.

    Raises UserError for a file that is not the part it should be.
    """
    parts = tuple(parts)
    folder = storage.join(output, run)
    with ThreadPoolExecutor(_READERS) as readers:
        totals = list(readers.map(lambda part: _totals(folder, part), parts))
    errors = sum((Counter(one.errors) for one in totals), Counter[str]())
    result = Result(
        run=run,
        rows=sum(one.rows for one in totals),
        rows_with_errors=errors.total(),
        errors=dict(errors),
        prompt_tokens=sum(one.prompt_tokens for one in totals),
        completion_tokens=sum(one.completion_tokens for one in totals),
        rows_per_s=rows_per_s,
        files=tuple(
            Written(file=f"{run}/{part_name(part.number)}", rows=part.rows) for part in parts
        ),
    )
    storage.write_atomically(storage.join(output, RESULT), result.model_dump_json(indent=2))
    _sweep(folder)
    return result


def _sweep(folder: str) -> None:
    """Removes what attempts that were killed left half written."""
    fs, path = storage.filesystem(folder)
    for half in fs.glob(f"{path}/*{storage.HALF_WRITTEN}"):
        fs.rm(half)


def _totals(folder: str, part: Part) -> Totals:
    url = storage.join(folder, part_name(part.number))
    fs, path = storage.filesystem(url)
    try:
        with fs.open(path, "rb") as file:
            metadata = pq.ParquetFile(file).metadata
        totals = Totals.model_validate_json((metadata.metadata or {})[TOTALS])
    except FileNotFoundError:
        raise UserError(f"{url}: no such file; name an output that all hosts share") from None
    except (OSError, pa.ArrowException, KeyError, ValidationError):
        raise UserError(f"{url}: not a part of this run; remove it, and run again") from None
    if (metadata.num_rows, totals.rows) != (part.rows, part.rows):
        raise UserError(
            f"{url}: has {metadata.num_rows} rows instead of {part.rows}; remove it, and run again"
        )
    return totals
