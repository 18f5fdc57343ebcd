"""Nodes of YAML: how much they hold once aliases are written out, and on which line a value is."""

from collections.abc import Callable, Iterable
from itertools import chain

import yaml

from policies.view import Path

MOST_VALUES = 100_000
"""Of one document, aliases written out. Kubernetes itself takes no object of over 1.5 MiB."""
MOST_VALUES_OF_FILE = 1_000_000
MOST_DEPTH = 100


class ReadError(Exception):
    """A file that cannot be read. One line that ends with the way out."""


def measure(root: yaml.Node) -> int:
    """The values in it. Refuses what is too deep, endless, or too large with its aliases out."""
    sizes: dict[int, int] = {}
    above: set[int] = set()

    def size(node: yaml.Node, depth: int) -> int:
        key = id(node)
        if key in sizes:
            return sizes[key]
        if key in above:
            raise ReadError(f"{at(node)}: contains itself by an alias; write it out")
        if depth > MOST_DEPTH:
            raise ReadError(f"{at(node)}: is nested deeper than {MOST_DEPTH}; flatten it")
        above.add(key)
        total = 1
        for child in children(node):
            total += 1 if isinstance(child, yaml.ScalarNode) else size(child, depth + 1)
        above.remove(key)
        if total > MOST_VALUES:
            raise ReadError(f"{at(node)}: holds over {MOST_VALUES} values; split it")
        sizes[key] = total
        return total

    return 1 if isinstance(root, yaml.ScalarNode) else size(root, 0)


def children(node: yaml.Node) -> Iterable[yaml.Node]:
    """Of a mapping, keys and values in turn."""
    return chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value


def at(node: yaml.Node) -> str:
    return f":{node.start_mark.line + 1}"


def lines(node: yaml.Node, start: Path, *, snake: bool = False) -> Callable[[Path], int | None]:
    """Finds the line of a path: of the deepest part of it that is there."""

    def line_of(path: Path) -> int:
        at, line = node, node.start_mark.line
        for part in (*start, *path):
            step = _step(at, part, snake=snake)
            if step is None:
                break
            line, at = step
        return line + 1

    return line_of


def _step(node: yaml.Node, part: str | int, *, snake: bool) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        child: yaml.Node = node.value[part]
        return child.start_mark.line, child
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):
            if isinstance(key, yaml.ScalarNode):
                name = camel(key.value) if snake else key.value
                if part in (name, key.value):
                    return key.start_mark.line, value
    return None


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
