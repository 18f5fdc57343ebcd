"""Pulumi's values on the wire, as plain Python values and back.

The stand-ins accept no secrets, so the engine opens them before it asks and seals them again in
what it stores. An unknown value is the text UNKNOWN.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from pulumi.runtime.rpc import UNKNOWN

__all__ = ["UNKNOWN", "Path", "at", "changes", "leaves", "plain", "put", "spelled", "struct"]

Path = tuple[str, ...]
"""Keys from the outermost in; a key may hold dots, as those of labels do."""


def plain(struct: struct_pb2.Struct) -> dict[str, Any]:
    """A message's values, whole numbers as int. What is null is not there."""
    return _plain(MessageToDict(struct))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def struct(values: dict[str, Any]) -> struct_pb2.Struct:
    return ParseDict(values, struct_pb2.Struct())


def at(values: Any, path: str | Path) -> Any:
    """The value at a path, which may be written nodeConfig.spot; None if there is none."""
    for key in path.split(".") if isinstance(path, str) else path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def put(values: dict[str, Any], path: str | Path, value: Any) -> None:
    *outer, last = path.split(".") if isinstance(path, str) else path
    for key in outer:
        values = values.setdefault(key, {})
    values[last] = value


def leaves(values: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Paths and values; a list is one value."""
    if not isinstance(values, dict) or not values:
        yield path, values
        return
    for key, part in values.items():
        yield from leaves(part, (*path, key))


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[Path]:
    """Where two differ. What is not known yet counts as different."""
    before, after = dict(leaves(old)), dict(leaves(new))
    paths = sorted(before.keys() | after.keys())
    return [p for p in paths if before.get(p) != after.get(p) or after.get(p) == UNKNOWN]


def spelled(path: Path) -> str:
    """As the engine writes it: spec.a["b.c/d"]."""
    parts = [f'["{key}"]' if "." in key or "/" in key else f".{key}" for key in path]
    return "".join(parts).removeprefix(".")
