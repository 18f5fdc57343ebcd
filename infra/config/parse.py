"""From plain values to models, faults put into the user's words: where, what, the way out."""

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar, get_args

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from infra.errors import ConfigError, Problem, quote

Model = TypeVar("Model", bound=BaseModel)

HIDDEN = "[secret]"


def is_mapping(value: Any) -> TypeGuard[dict[str, Any]]:
    """JSON has no other keys than text."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


_NOT_A = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_LIMIT = {
    "greater_than_equal": ("is too small", "use {ge} or more"),
    "greater_than": ("is too small", "use more than {gt}"),
    "less_than_equal": ("is too large", "use {le} or less"),
    "less_than": ("is too large", "use less than {lt}"),
    "multiple_of": ("is no multiple of {multiple_of}", "use a multiple of {multiple_of}"),
    "too_short": ("is empty", "write at least {min_length}"),
    "string_too_short": ("is empty", "write at least {min_length} characters"),
    "literal_error": ("is not one of the choices", "use {expected}"),
}


@dataclass(frozen=True)
class Scope:
    """A top-level key of the stack file: its values are quoted, unless one of them is a secret.

    Pulumi marks such a key as a whole: the engine does not tell which value in it is the secret.
    """

    hidden: bool

    def quote(self, value: object) -> str:
        return HIDDEN if self.hidden else quote(value)

    def show(self, text: str) -> str:
        """Text that contains values."""
        return HIDDEN if self.hidden else text

    def problem(self, where: str, value: object, what: str, fix: str) -> Problem:
        """A fault that begins with the value at fault."""
        if self.hidden:
            return Problem(where, f"{HIDDEN} {what}", fix)
        return Problem.of(where, value, what, fix)


def parse(model: type[Model], raw: Any, where: str, scope: Scope, noun: str) -> Model:
    """Raises ConfigError with all faults of the value.

    Args:
        model: What the value should be.
        raw: A plain value, as JSON gives it.
        where: Its place in the file.
        scope: Decides whether its parts may be quoted.
        noun: What the value stands for, such as "a slice".
    """
    if not is_mapping(raw):
        keys = ", ".join(name for name, field in model.model_fields.items() if field.is_required())
        fault = scope.problem(where, raw, f"is not {noun}", f"write a mapping with {keys}")
        raise ConfigError([fault])
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        faults = [_problem(detail, model, where, scope) for detail in error.errors()]
        raise ConfigError(faults) from None


def is_tag(part: object) -> bool:
    """Whether a part of a place is a union's tag: those are in <>, since no key looks so."""
    return isinstance(part, str) and part.startswith("<")


def unknown_key(where: str, key: object, known: Collection[str]) -> Problem:
    close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.6)
    fix = f"did you mean {close[0]}?" if close else f"the keys are {', '.join(known)}"
    return Problem(where, "there is no such key", fix)


def _problem(detail: ErrorDetails, model: type[BaseModel], where: str, scope: Scope) -> Problem:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    loc = detail["loc"]
    unknown = kind == "extra_forbidden"
    loc = loc[:-1] if loc[-1:] == ("[key]",) else loc  # the key of a mapping, which is in the place
    path = [*(part for part in loc[:-1] if not is_tag(part)), *loc[-1:]]
    if path and is_tag(path[-1]) and not unknown:
        path.pop()
    place = (where + "".join(_step(part) for part in path)).replace(":.", ":", 1)
    if kind == "missing":
        return Problem(place, "is missing", f"add {path[-1]}")
    if unknown:
        return unknown_key(place, path[-1], _keys_at(model, loc[:-1]))
    if kind == "user":
        return scope.problem(place, value, context["what"], context["fix"])
    if kind in _NOT_A:
        return scope.problem(place, value, f"is not {_NOT_A[kind]}", f"write {_NOT_A[kind]}")
    if kind in _LIMIT:
        what, fix = _LIMIT[kind]
        return scope.problem(place, value, what.format(**context), fix.format(**context))
    return scope.problem(place, value, "is not valid here", f"see what {place} may be")


def _step(part: object) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{_plain(str(part))}"


def _plain(key: str) -> str:
    """A key as written, or quoted where it would break the line."""
    return key if key.isascii() and key.isprintable() else quote(key)


def _keys_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Keys of the model that a path of keys, indexes and tags inside of a model leads to."""
    annotation: Any = model
    for part in loc:
        if is_tag(part):
            annotation = next(_tagged(annotation, part))
        elif isinstance(part, str):
            annotation = next(_models(annotation)).model_fields[part].annotation
    return list(next(_models(annotation)).model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _tagged(annotation: Any, tag: object) -> Iterator[Any]:
    """Members of a union that carry the tag."""
    if any(isinstance(part, Tag) and part.tag == tag for part in get_args(annotation)):
        yield annotation
    for argument in get_args(annotation):
        yield from _tagged(argument, tag)
