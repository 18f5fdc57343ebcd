"""Files of prompts, judged and counted before any prompt is computed.

What is wrong with a file as a whole is a fault, told with all others: no such column, another type,
no JSON, rows without an id.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from workloads.data import storage
from workloads.data.sources import Source, no_column, suffix
from workloads.infer.plan import File
from workloads.infer.prompts import Columns, is_unicode

SUFFIXES = (".jsonl", ".parquet")
MAX_FAULTS = 20
"""Of one file; enough to see what is wrong with it."""
INT64 = range(-(2**63), 2**63)
CHUNK_BYTES = 8 * 2**20
FORMS = "neither text nor a list of token ids"
IDS = "neither text nor a whole number of 64 bits"


@dataclass
class Scan:
    """What a file holds."""

    url: str
    rows: int = 0
    digest: str = ""
    id_kinds: set[str] = field(default_factory=set)
    """Of "text" and "number"."""
    faults: list[str] = field(default_factory=list)

    @property
    def file(self) -> File:
        return File(self.url, self.rows, self.digest)


def scan(source: Source, columns: Columns) -> Scan:
    """Reads all of a file, up to its MAX_FAULTS-th fault."""
    result = Scan(source.url)
    fs, path = storage.filesystem(source.url)
    read = _jsonl if suffix(source.url) == ".jsonl" else _parquet
    try:
        with fs.open(path, "rb") as file:
            read(result, cast(BinaryIO, file), columns)
            file.seek(0)
            result.digest = _digest(cast(BinaryIO, file))
    except UnicodeDecodeError as error:
        fault = f"{source.url}: byte {error.start} of a line is not UTF-8 text; convert the file"
        result.faults.append(fault)
    except (OSError, pa.ArrowException) as error:
        fault = f"{source.url}: cannot be read ({error}); repair or remove the file"
        result.faults.append(fault)
    return result


def id_faults(scans: list[Scan], columns: Columns) -> Iterator[str]:
    """One column of the output holds the ids of all files."""
    if len({kind for one in scans for kind in one.id_kinds}) > 1:
        for one in scans:
            kinds = " and ".join(f"{kind}s" for kind in sorted(one.id_kinds))
            if kinds:
                yield f"{one.url}: column {columns.id!r} holds {kinds}; write all ids as text"


def _jsonl(result: Scan, file: BinaryIO, columns: Columns) -> None:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        result.rows += 1
        where = f"{result.url}:{number}"
        try:
            record = json.loads(line.decode())
        except json.JSONDecodeError as error:
            fault = f"{where}: not JSON ({error.msg}); one JSON object a line is expected"
            result.faults.append(fault)
        else:
            result.faults += (f"{where}: {fault}" for fault in _record(result, record, columns))
        if len(result.faults) >= MAX_FAULTS:
            return


def _record(result: Scan, record: Any, columns: Columns) -> Iterator[str]:
    if not isinstance(record, dict):
        yield "not a JSON object; one a line is expected"
        return
    if columns.prompt not in record:
        yield no_column(columns.prompt, record, "prompt_column")
    elif not _is_prompt(record[columns.prompt]):
        kind = type(record[columns.prompt]).__name__
        yield f"column {columns.prompt!r} holds {kind}, {FORMS}; set prompt_column"
    if columns.id is None:
        return
    if columns.id not in record:
        yield f"{no_column(columns.id, record, 'id_column')}; null for none"
    elif kind := _id_kind(record[columns.id]):
        result.id_kinds.add(kind)
    else:
        value = json.dumps(record[columns.id])[:40]
        yield f"id {value} is {IDS}; give each row one, or set id_column"


def _is_prompt(value: Any) -> bool:
    tokens = isinstance(value, list) and all(type(token) is int for token in value)
    return value is None or isinstance(value, str) or tokens


def _id_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "text" if is_unicode(value) else None
    return "number" if type(value) is int and value in INT64 else None


def _parquet(result: Scan, file: BinaryIO, columns: Columns) -> None:
    table = pq.ParquetFile(file)
    schema = table.schema_arrow
    result.rows = table.metadata.num_rows
    faults = [*_prompt_column(schema, columns.prompt)]
    if columns.id is not None:
        faults += _id_column(table, columns.id)
        if columns.id in schema.names:
            kind = "text" if _is_text(schema.field(columns.id).type) else "number"
            result.id_kinds.add(kind)
    result.faults += (f"{result.url}: {fault}" for fault in faults)


def _prompt_column(schema: pa.Schema, name: str) -> Iterator[str]:
    if name not in schema.names:
        yield no_column(name, schema.names, "prompt_column")
    elif not _holds_prompts(kind := schema.field(name).type):
        yield f"column {name!r} holds {_told(kind)}, {FORMS}; set prompt_column"


def _id_column(table: pq.ParquetFile, name: str) -> Iterator[str]:
    schema = table.schema_arrow
    if name not in schema.names:
        yield f"{no_column(name, schema.names, 'id_column')}; null for none"
        return
    kind = schema.field(name).type
    if not (_is_text(kind) or (pa.types.is_integer(kind) and kind != pa.uint64())):
        yield f"column {name!r} holds {_told(kind)}, {IDS}; set id_column"
    elif nulls := sum(b.column(0).null_count for b in table.iter_batches(columns=[name])):
        yield f"{nulls} rows have no {name!r}; give each row one, or set id_column"


def _holds_prompts(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    tokens = any(is_list(kind) for is_list in lists) and pa.types.is_integer(kind.value_type)
    return tokens or _is_text(kind) or pa.types.is_null(kind)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _told(kind: pa.DataType) -> str:
    """Images are told as such: as bytes, or in the form of Hugging Face's data sets."""
    names = {kind.field(i).name for i in range(kind.num_fields)}
    raw = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or {"bytes", "path"} <= names
    return f"images or other bytes ({kind})" if raw else str(kind)


def _digest(file: BinaryIO) -> str:
    digest = hashlib.blake2b(digest_size=16)
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
