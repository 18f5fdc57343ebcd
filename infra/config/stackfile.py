"""A stack file on disk, brought into the form in which Pulumi hands it to its program.

Pulumi reads YAML with Go's yaml.v3, whose idea of a plain scalar is not PyYAML's: `on` is text,
`3e-3` a number, `1:30` text. The loader here follows it, so that `raytpu check` judges the values
that `pulumi up` will see.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import yaml

from infra.config.load import PREFIX
from infra.config.parse import is_list, is_mapping

_INT_RANGE = range(-(2**63), 2**63)  # yaml.v3 reads what is far outside of it as a float
_MOST_VALUES = 100_000
_GO_WRITES_EXPONENT = 1e21  # Go's JSON writes smaller whole floats as integers

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_PREFIXED = re.compile(r"[-+]?0(b[01_]+|o[0-7_]+|x[0-9a-fA-F_]+)")
_OCTAL = re.compile(r"[-+]?0[0-7]+")
_WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"


class UnreadableError(Exception):
    """A stack file that could not be read: one line that ends with the way out."""


def read(path: Path) -> dict[str, str]:
    """The `config` of a stack file as Pulumi would pass it on: full keys; text or JSON.

    Secrets stay {secure: ciphertext}. Raises UnreadableError.
    """
    config = read_yaml(path).get("config")
    if not is_mapping(config):
        raise UnreadableError(f"{path}: there is no mapping under `config:`; write one")
    try:
        if _size(config, {}) > _MOST_VALUES:
            raise UnreadableError(f"{path}: its anchors make too many values; use fewer")
        for key in config:
            if _full_key(key) != key and _full_key(key) in config:
                raise UnreadableError(f"{path}: {key} is also {_full_key(key)}; remove one")
        return {_full_key(key): _text(value) for key, value in config.items()}
    except TypeError:
        raise UnreadableError(f"{path}: a value is no plain data; remove its YAML tag") from None
    except RecursionError:
        raise UnreadableError(f"{path}: a value contains itself; write it out") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """A file of Pulumi's, of which the outermost value is a mapping. Raises UnreadableError."""
    try:
        # A subclass of SafeLoader, which the rule cannot see.
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}; name a file you can read") from None
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"{path}: byte {error.start} is not UTF-8; save it as UTF-8"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UnreadableError(f"{path}{line}: {error.problem}; correct the YAML there") from None
    except yaml.reader.ReaderError as error:
        raise UnreadableError(
            f"{path}: character {error.position} is not allowed in YAML; remove it"
        ) from None
    except RecursionError:
        raise UnreadableError(f"{path}: its values are nested too deep; flatten them") from None
    if not is_mapping(content):
        raise UnreadableError(f"{path}: it is no mapping; begin with `config:`")
    return content


def _size(value: Any, known: dict[int, int]) -> int:
    """How many values there are once all anchors are written out."""
    if not is_mapping(value) and not is_list(value):
        return 1
    if id(value) not in known:
        parts = value.values() if is_mapping(value) else value
        known[id(value)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(value)]


def _full_key(key: str) -> str:
    """A key without a namespace is the project's own."""
    return key if ":" in key else PREFIX + key


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float | str:
    text = str(loader.construct_scalar(node))
    plain = text.replace("_", "")
    if _PREFIXED.fullmatch(plain):
        return int(plain, 0)
    if _OCTAL.fullmatch(plain):
        return int(plain, 8)
    if not _DECIMAL.fullmatch(plain):
        raise yaml.MarkedYAMLError(problem=f"{text!r} is no number", problem_mark=node.start_mark)
    value = float(plain)
    if math.isinf(value):
        return text
    if _WHOLE.fullmatch(plain) and abs(value) < _INT_RANGE.stop and int(plain) in _INT_RANGE:
        return int(plain)
    whole = value.is_integer() and abs(value) < _GO_WRITES_EXPONENT
    return int(value) if whole else value


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own registry, here without YAML 1.1's rules

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Keys are text, and none is given twice."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no text", problem_mark=key.start_mark)
            if key.tag == _MERGE:
                continue
            if key.value in seen:
                problem = f"key {key.value!r} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
            key.tag = _TAG + "str"
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replaces `<<` by what it names: own keys win, and of several sources the first.

        PyYAML's own (6.0.4) lets the innermost of chained merges win.
        """
        pairs: dict[str, tuple[Any, Any]] = {}
        for source in [value for key, value in node.value if key.tag == _MERGE]:
            for mapping in source.value if isinstance(source, yaml.SequenceNode) else [source]:
                if not isinstance(mapping, yaml.MappingNode):
                    problem = "`<<` names no mapping"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=mapping.start_mark)
                self.flatten_mapping(mapping)
                pairs = {**{key.value: (key, value) for key, value in mapping.value}, **pairs}
        own = {key.value: (key, value) for key, value in node.value if key.tag != _MERGE}
        node.value = [*{**pairs, **own}.values()]


for _tag, _form, _first in (
    ("null", _NULL, ["~", "n", "N", ""]),
    ("bool", _BOOL, list("tTfF")),
    ("int", _PREFIXED, list("-+0")),
    ("int", _WHOLE, list("-+0123456789")),
    ("float", _DECIMAL, list("-+.0123456789")),
    ("merge", re.compile("<<"), ["<"]),
):
    _Loader.add_implicit_resolver(  # pyright: ignore[reportUnknownMemberType] - half-typed stubs
        _TAG + _tag, re.compile(f"(?:{_form.pattern})$"), _first
    )
_Loader.add_constructor(_TAG + "int", _number)
_Loader.add_constructor(_TAG + "float", _number)
