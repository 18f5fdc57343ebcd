"""Kubernetes objects and rendered cloud resources out of files, with the line of every value.

Files come from anybody: what cannot be read is told in a line of its own, and nothing that a file
holds can make the reading hang or grow without bound.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, BinaryIO

import yaml
from yaml.resolver import Resolver

from policies.nodes import MOST_VALUES_OF_FILE, ReadError, camel, lines, measure
from policies.plain import mapping, sequence
from policies.view import Item, Path, Unknown

SUFFIXES = (".yaml", ".yml", ".json")
MOST_BYTES = 16 * 2**20

_RENDERED = re.compile(r"[a-z]+\.[A-Z]\w+\.json")
"""What `raytpu render` calls the cloud resources of one type."""
_FREE_KEYS = frozenset({"labels", "resource_labels"})
"""Whose keys are the user's, not the SDK's."""

GROUPS = {
    "ComputeClass": ("cloud.google.com",),
    "CronJob": ("batch",),
    "DaemonSet": ("apps",),
    "Deployment": ("apps",),
    "Ingress": ("networking.k8s.io",),
    "Job": ("batch",),
    "JobSet": ("jobset.x-k8s.io",),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io",),
    "Namespace": ("",),
    "NetworkPolicy": ("networking.k8s.io",),
    "Pod": ("",),
    "RayCluster": ("ray.io",),
    "RayJob": ("ray.io",),
    "RayService": ("ray.io",),
    "ReplicaSet": ("apps",),
    "ResourceQuota": ("",),
    "Secret": ("",),
    "Service": ("",),
    "StatefulSet": ("apps",),
}
"""API groups of the kinds that rules know: another group's kind of the same name is another."""

_BAD_VALUE = (yaml.YAMLError, ValueError, TypeError, KeyError, IndexError, AttributeError)
"""What PyYAML raises: its own, and whatever a value raises that does not fit its tag."""


@dataclass
class Documents:
    items: list[Item] = field(default_factory=list[Item])
    unreadable: list[str] = field(default_factory=list[str])
    others: int = 0
    """Documents that are no objects, such as values of a chart."""


_STR, _SEQ, _MAP = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


class _Loader(yaml.CSafeLoader):
    """Values with the braces of a template in them are not known.

    Its methods do what PyYAML's own do, for what most documents are made of, in half the time.
    """

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return _tag_of(value)
        return super().resolve(kind, value, implicit)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - half-typed stubs

    def value(self, node: yaml.Node) -> Any:
        """Of a node whose size was measured: it is of bounded depth and has no loops."""
        if node.tag == _STR and isinstance(node, yaml.ScalarNode):
            return _text(self, node)
        if node.tag == _SEQ and isinstance(node, yaml.SequenceNode):
            return [self.value(child) for child in node.value]
        if node.tag == _MAP and isinstance(node, yaml.MappingNode):
            keys = {key.tag for key, _ in node.value}
            if keys == {_STR}:
                return {_text(self, key): self.value(value) for key, value in node.value}
        return self.construct_object(node, deep=True)  # pyright: ignore[reportUnknownMemberType] - as above


@lru_cache(4096)
def _tag_of(plain: str) -> Any:
    """Of a scalar without quotes, such as int."""
    resolver: Any = Resolver()
    return resolver.resolve(yaml.ScalarNode, plain, (True, False))


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    value = loader.construct_scalar(node)
    return Unknown(value) if "{{" in value else value


_Loader.add_constructor(_STR, _text)


def read(paths: Iterable[str], stdin: BinaryIO) -> Documents:
    """All objects in files, in folders with what is below them, and in `-`, the standard input."""
    documents = Documents()
    for path in paths:
        # Of a loop of links pathlib would raise.
        files = _files(path) if os.path.isdir(path) else (path,)  # noqa: PTH112
        for file in files:
            try:
                _take(file, read_text(file, stdin), documents)
            except ReadError as error:
                documents.unreadable.append(str(error))
    return documents


def read_text(path: str, stdin: BinaryIO) -> str:
    """Of a file, or of `-`. Raises ReadError."""
    if path == "-":
        return _decoded(path, stdin.read(MOST_BYTES + 1))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - as above
            raise ReadError(f"{path}: is no regular file; name a file or folder, or pipe it to -")
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            return _decoded(path, file.read(MOST_BYTES + 1))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ReadError(f"{path}: cannot be read ({reason}); name a file that can") from None


@lru_cache(256)
def embedded(text: str) -> Any:
    """The first value of YAML that an object holds as text, to be read only; None if it is none."""
    try:
        return next((value for value, _ in _documents(text)), None)
    except ReadError:
        return None


def _files(folder: str) -> Iterator[str]:
    """In order of their names. Links to folders and hidden files are left alone."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(SUFFIXES) and not name.startswith("."):
                yield os.path.join(root, name)  # noqa: PTH118 - as os.walk gives it


def _decoded(path: str, raw: bytes) -> str:
    if len(raw) > MOST_BYTES:
        size = f"{MOST_BYTES // 2**20} MiB"
        raise ReadError(f"{path}: is larger than {size}; split it")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReadError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _take(path: str, text: str, documents: Documents) -> None:
    rendered = _RENDERED.fullmatch(FilePath(path).name)
    if path.endswith(".json") and not rendered and '"apiVersion"' not in text:
        documents.others += 1
        return
    try:
        for value, node in _documents(text):
            found = _items(path, value, node)
            documents.items += found
            documents.others += value is not None and not found
    except ReadError as error:
        raise ReadError(f"{path}{error}") from None


def _documents(text: str) -> Iterator[tuple[Any, yaml.Node]]:
    """Raises ReadError without the file's name, which it begins after."""
    loader = _Loader("")
    try:
        loader = _Loader(text)
        total = 0
        while loader.check_node() and (node := loader.get_node()):
            total += measure(node)
            if total > MOST_VALUES_OF_FILE:
                raise ReadError(f": holds over {MOST_VALUES_OF_FILE} values; split it")
            yield loader.value(node), node
            loader.constructed_objects.clear()
    except _BAD_VALUE as error:
        raise ReadError(_why(error, text)) from None
    finally:
        loader.dispose()


def _why(error: Exception, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark else ""
    if "{{" in text:
        fix = "render it first, e.g. `helm template CHART | raytpu review -`"
        return f"{line}: is a template, not YAML; {fix}"
    what = getattr(error, "problem", None) or str(error).splitlines()[0] or type(error).__name__
    return f"{line}: is no YAML ({what}); mend it"


def _items(path: str, value: Any, node: yaml.Node) -> list[Item]:
    name = FilePath(path).name
    if _RENDERED.fullmatch(name) and isinstance(value, list):
        kind = f"gcp.{name.removesuffix('.json')}"
        return [
            _cloud(kind, mapping(args), path, lines(node, (index,), snake=True))
            for index, args in enumerate(sequence(value))
        ]
    body = mapping(value)
    if body.get("kind") == "List":
        parts = enumerate(sequence(body.get("items")))
        objects = [_object(mapping(part), path, lines(node, ("items", i))) for i, part in parts]
    else:
        objects = [_object(body, path, lines(node, ()))]
    return [item for item in objects if item is not None]


def _object(body: dict[str, Any], path: str, line_of: Callable[[Path], int | None]) -> Item | None:
    kind, version = body.get("kind"), body.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return None
    return Item(kind_of(version, kind), name_of(body), body, path, line_of)


def kind_of(version: str, kind: str) -> str:
    """The kind, with its group unless it is the one that rules know by it."""
    group = version.rpartition("/")[0]
    return kind if group in GROUPS.get(kind, (group,)) else f"{group}/{kind}"


def name_of(body: dict[str, Any]) -> str:
    name = mapping(body.get("metadata")).get("name")
    return name if isinstance(name, str) else ""


def _cloud(
    kind: str, args: dict[str, Any], path: str, line_of: Callable[[Path], int | None]
) -> Item:
    body = mapping(_camel(args))
    return Item(kind, str(body.get("name", kind)), body, path, line_of, written=False)


def _camel(value: Any) -> Any:
    """Arguments of the Python SDK as properties of the resource."""
    if isinstance(value, list):
        return [_camel(element) for element in sequence(value)]
    if not isinstance(value, dict):
        return value
    return {
        camel(key): inner if key in _FREE_KEYS else _camel(inner)
        for key, inner in mapping(value).items()
    }
