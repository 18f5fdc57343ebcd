"""What rules look at: resources of a preview, a rendering or plain YAML, all in one form.

Cloud resources are Google's as Pulumi's SDK names them, with its properties in camelCase; the rest
are Kubernetes objects as manifests. A rule walks them by `Node`, which knows its place and lets no
unknown value or wrong type pass for an absent one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from policies.plain import mapping, sequence

Path = tuple[str | int, ...]


_DIGITS = 12
"""More than any number has that rules read."""


class Unknown(str):
    """A value that is not known yet: of a preview, or of a template that is not filled in."""

    __slots__ = ()


class UnknownError(Exception):
    """A rule needs what is not known: the value at a place, or what is named."""

    def __init__(self, path: Path, what: str = "") -> None:
        self.path = path
        self.what = what or spelled(path)
        super().__init__(self.what)


class MalformedError(Exception):
    """What stands at a place has not the form that Kubernetes or Google would take."""

    def __init__(self, path: Path, wanted: str) -> None:
        super().__init__(f"{spelled(path)} is not {wanted}")
        self.path = path
        self.wanted = wanted


def spelled(path: Path) -> str:
    """As users write it: spec.containers[0].image."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _no_line(_: Path) -> int | None:
    return None


@dataclass(frozen=True, eq=False)
class Item:
    """One resource or object."""

    kind: str
    """Of Kubernetes, e.g. RayJob; of Google's, below the SDK, e.g. gcp.container.NodePool."""
    name: str
    body: Any
    where: str
    """Its file, or its URN."""
    line_of: Callable[[Path], int | None] = field(default=_no_line, repr=False)
    change: str | None = None
    """What a preview would do with it, if it is a step: replace or delete."""
    written: bool = True
    """Whether a text that someone keeps; else secrets in it may be Pulumi's own."""

    @property
    def root(self) -> "Node":
        return Node(self, (), self.body)

    @property
    def namespace(self) -> str:
        return self.root["metadata"]["namespace"].text or "default"


@dataclass(frozen=True)
class Fault:
    """What a rule says of a place: what was found and wanted, and which key to change."""

    item: Item
    path: Path
    what: str
    fix: str


@dataclass(slots=True, eq=False)
class Node:
    """A value at its place. An absent one is None, and so is all below it.

    Rules make hundreds of them for an object: frozen, each would take twice as long.
    """

    item: Item
    path: Path
    value: Any

    def __getitem__(self, key: str) -> "Node":
        value = self.value
        if value is not None:
            if not isinstance(value, dict):
                raise self._wrong("a mapping")
            value = cast("dict[str, Any]", value).get(key)
        return Node(self.item, (*self.path, key), value)

    def __bool__(self) -> bool:
        """Whether anything is there."""
        return self.value is not None

    def __iter__(self) -> Iterator["Node"]:
        """The elements of a list; an absent one has none."""
        for index, value in enumerate(self._list()):
            yield Node(self.item, (*self.path, index), value)

    def __len__(self) -> int:
        return len(self._list())

    def entries(self) -> Iterator[tuple[str, "Node"]]:
        """The fields of a mapping."""
        fields = mapping(self.value)
        if not isinstance(self.value, dict | None):
            raise self._wrong("a mapping")
        for key, value in fields.items():
            yield str(key), Node(self.item, (*self.path, str(key)), value)

    def leaves(self) -> Iterator["Node"]:
        """Every text, number and truth below, whether known or not."""
        value = self.value
        if isinstance(value, dict):
            for _, node in self.entries():
                yield from node.leaves()
        elif isinstance(value, list):
            for node in self:
                yield from node.leaves()
        elif value is not None:
            yield self

    @property
    def text(self) -> str | None:
        value = self.value
        if isinstance(value, Unknown | dict | list):
            raise self._wrong("a text")
        if value is None or isinstance(value, str):
            return value
        return str(value).lower() if isinstance(value, bool) else str(value)

    @property
    def number(self) -> int | None:
        """A whole one, which Kubernetes also takes as text where it is a quantity."""
        value = self.value
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _DIGITS:
            return int(value)
        raise self._wrong("a whole number")

    @property
    def flag(self) -> bool | None:
        if self.value is None or isinstance(self.value, bool):
            return self.value
        raise self._wrong("true or false")

    def texts(self) -> list[str]:
        return [text for node in self if (text := node.text) is not None]

    def fault(self, what: str, fix: str) -> Fault:
        return Fault(self.item, self.path, what, fix)

    def _list(self) -> list[Any]:
        elements = sequence(self.value)
        if not isinstance(self.value, list | None):
            raise self._wrong("a list")
        return elements

    def _wrong(self, wanted: str) -> UnknownError | MalformedError:
        if isinstance(self.value, Unknown):
            return UnknownError(self.path)
        return MalformedError(self.path, wanted)


@dataclass(frozen=True, eq=False)
class View:
    items: Sequence[Item]
    steps: Sequence[Item] = ()
    """What a preview would replace or delete. Only previews have steps."""
    whole: bool = False
    """Whether these are all objects of a stack; else what is not here may be elsewhere."""
    environment: str | None = None
    """As the stack says it."""

    @cached_property
    def _by_kind(self) -> dict[str, list[Item]]:
        found: dict[str, list[Item]] = {}
        for item in self.items:
            found.setdefault(item.kind, []).append(item)
        return found

    def of(self, *kinds: str) -> Iterable[Item]:
        return [item for kind in kinds for item in self._by_kind.get(kind, ())]
