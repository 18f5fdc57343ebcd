"""Where text comes from: names to files, files to shards, shards to documents.

Reading never stops at the first fault: faults are yielded beside documents, so a user hears of all
of them at once. A .txt file is a document; a long one is cut at blank lines, so one book still
gives documents to hold out. A record of .jsonl or .parquet is a document.
"""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from workloads.data import storage
from workloads.errors import UserError

BUILT_IN = "pydoc_data.topics"
"""English text that every Python brings along: the default corpus."""
SUFFIXES = (".txt", ".jsonl", ".parquet")
LONG_TEXT_CHARS = 64 * 1024


@dataclass(frozen=True)
class Source:
    """One file, or the built-in text."""

    url: str
    size_bytes: int


@dataclass(frozen=True)
class Document:
    text: str


@dataclass(frozen=True)
class Null:
    """A record without text: counted, and no fault."""


@dataclass(frozen=True)
class Fault:
    message: str


Item = Document | Null | Fault


def find(names: Iterable[str], suffixes: Sequence[str] = SUFFIXES) -> tuple[Source, ...]:
    """The files behind `names` (files, folders, globs), each once, in the order of their paths.

    The built-in text if there is no name. Raises UserError for all names that lead to nothing
    readable.
    """
    found: dict[str, Source] = {}
    faults: list[str] = []
    for name in names:
        try:
            sources = _expand(name, suffixes)
        except UserError as error:
            faults.extend(error.faults)
        except (OSError, ValueError, ImportError) as error:
            faults.append(f"{name}: cannot be listed ({error}); check the name and your access")
        else:
            found |= {source.url: source for source in sources}
    if faults:
        raise UserError(*faults)
    return tuple(found[url] for url in sorted(found)) or (_built_in(),)


def shards(sources: Iterable[Source], shard_bytes: int) -> tuple[tuple[Source, ...], ...]:
    """Neighbouring files together until a shard has `shard_bytes`: the unit of parallel work.

    It depends on the files alone, so the result of the job does not depend on the cluster.
    """
    groups: list[list[Source]] = []
    room = 0
    for source in sources:
        if not groups or source.size_bytes > room:
            groups.append([])
            room = shard_bytes
        groups[-1].append(source)
        room -= source.size_bytes
    return tuple(tuple(group) for group in groups)


def read(source: Source, column: str) -> Iterator[Item]:
    """The documents of `source` in order; `column` holds them in .jsonl and .parquet."""
    if source.url == BUILT_IN:
        yield from (Document(text) for text in _topics())
        return
    readers = {".txt": _text, ".jsonl": _jsonl, ".parquet": _parquet}
    fs, path = storage.filesystem(source.url)
    try:
        with fs.open(path, "rb") as file:
            yield from readers[suffix(source.url)](source.url, file, column)
    except UnicodeDecodeError as error:
        yield Fault(
            f"{source.url}: byte {error.start} is not UTF-8 text; convert or remove the file"
        )
    except (OSError, pa.ArrowException) as error:
        yield Fault(f"{source.url}: cannot be read ({error}); repair or remove the file")


def _expand(name: str, suffixes: Sequence[str]) -> list[Source]:
    fs, path = storage.filesystem(name)
    if any(mark in path for mark in "*?["):
        paths = [str(match) for match in fs.glob(path) if fs.isfile(match)]
        if not paths:
            raise UserError(f"{name}: matches no file; check the pattern")
    elif fs.isdir(path):
        paths = [str(inner) for inner in fs.find(path) if suffix(str(inner)) in suffixes]
        if not paths:
            raise UserError(f"{name}: has no {' or '.join(suffixes)} file; name another folder")
    elif fs.exists(path):
        paths = [path]
    else:
        raise UserError(f"{name}: no such file; check the path, which the cluster must see too")
    unknown = [path for path in paths if suffix(path) not in suffixes]
    if unknown:
        kinds = ", ".join(suffixes)
        raise UserError(*(f"{path}: unknown kind of file; use one of {kinds}" for path in unknown))
    return [Source(_url(fs, path), int(fs.size(path) or 0)) for path in paths]


def _url(fs: AbstractFileSystem, path: str) -> str:
    return path if isinstance(fs, LocalFileSystem) else str(fs.unstrip_protocol(path))


def suffix(path: str) -> str:
    """In lower case, with its dot."""
    name = path.rsplit("/", 1)[-1].lower()
    return f".{name.rsplit('.', 1)[-1]}" if "." in name else ""


def _topics() -> list[str]:
    from pydoc_data.topics import topics  # half a megabyte of text: only for who reads it

    return [topics[name] for name in sorted(topics)]


def _built_in() -> Source:
    return Source(BUILT_IN, sum(len(text) for text in _topics()))


def _text(url: str, file: io.BufferedIOBase, _column: str) -> Iterator[Item]:
    text = file.read().decode()
    if "\x00" in text:
        yield Fault(f"{url}: holds NUL bytes, so it is not text; remove the file")
        return
    yield from (Document(part) for part in cut(text))


def cut(text: str) -> Iterator[str]:
    """Parts of at least LONG_TEXT_CHARS that end at blank lines; all parts together are `text`."""
    start = 0
    while len(text) - start > LONG_TEXT_CHARS:
        blank = text.find("\n\n", start + LONG_TEXT_CHARS)
        if blank < 0:
            break
        yield text[start : blank + 2]
        start = blank + 2
    if start < len(text) or not text:
        yield text[start:]


def _jsonl(url: str, file: io.BufferedIOBase, column: str) -> Iterator[Item]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        where = f"{url}:{number}"
        try:
            record = json.loads(line.decode())
        except json.JSONDecodeError as error:
            yield Fault(f"{where}: not JSON ({error.msg}); one JSON object a line is expected")
            continue
        yield _field(where, record, column)


def _field(where: str, record: Any, column: str) -> Item:
    if not isinstance(record, dict):
        return Fault(f"{where}: not a JSON object; one a line is expected")
    if column not in record:
        return Fault(f"{where}: {no_column(column, record)}")
    match record[column]:
        case None:
            return Null()
        case str(text):
            return Document(text)
        case value:
            kind = type(value).__name__
            return Fault(f"{where}: column {column!r} holds {kind}, not text; set text_column")


def _parquet(url: str, file: io.BufferedIOBase, column: str) -> Iterator[Item]:
    table = pq.ParquetFile(file)
    schema = table.schema_arrow
    if column not in schema.names:
        yield Fault(f"{url}: {no_column(column, schema.names)}")
        return
    kind = schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        yield Fault(f"{url}: column {column!r} holds {kind}, not text; set text_column")
        return
    batches = table.iter_batches(columns=[column])
    for text in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
        yield Null() if text is None else Document(text)


def no_column(column: str, names: Iterable[str], setting: str = "text_column") -> str:
    known = ", ".join(sorted(names)) or "there is none"
    return f"no column {column!r}; set {setting} to one of: {known}"
