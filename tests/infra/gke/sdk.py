"""Checks keyword arguments against the installed SDK: the names, the required ones and the types.

Pulumi's constructors take any dict for a nested block and let the provider complain, hours later on
a paid cluster. Its typed dicts say what a block may hold, so they are walked here.
"""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pulumi
import pulumi_gcp


def faults(resource_type: str, args: Mapping[str, Any]) -> list[str]:
    """What the SDK's class does not know, lacks or holds in another type."""
    module_name, _, class_name = resource_type.partition(".")
    sdk_class = getattr(getattr(pulumi_gcp, module_name), class_name)
    module = sys.modules[sdk_class.__module__]
    required = {
        name
        for name, parameter in inspect.signature(
            getattr(module, f"{class_name}Args")
        ).parameters.items()
        if parameter.default is inspect.Parameter.empty
    }
    hints = _hints(sdk_class._internal_init, module)  # noqa: SLF001 - __init__ itself says *args
    known = {name: hints[name] for name in hints if name not in ("resource_name", "opts")}
    return [*_block_faults(known, required, args, resource_type)]


def _block_faults(
    known: Mapping[str, Any],
    required: Collection[str],
    args: Mapping[str, Any],
    where: str,
) -> Iterator[str]:
    for name in sorted({*required} - {*args}):
        yield f"{where}: lacks {name}"
    for name, value in args.items():
        if name not in known:
            yield f"{where}: knows no {name}"
        else:
            yield from _value_faults(known[name], value, f"{where}.{name}")


def _value_faults(hint: Any, value: Any, where: str) -> Iterator[str]:
    allowed = [*_members(hint)]
    if isinstance(value, dict):
        yield from _dict_faults(allowed, value, where)
    elif isinstance(value, list):
        of_items = [typing.get_args(t)[0] for t in allowed if typing.get_origin(t) is Sequence]
        if not of_items:
            yield f"{where}: is no list"
        for index, item in enumerate(value if of_items else []):
            yield from _value_faults(of_items[0], item, f"{where}[{index}]")
    elif type(value) not in allowed:
        names = " or ".join(getattr(hint, "__name__", str(hint)) for hint in allowed)
        yield f"{where}: {value!r} is no {names}"


def _dict_faults(allowed: list[Any], value: dict[str, Any], where: str) -> Iterator[str]:
    for hint in allowed:
        if typing.is_typeddict(hint):
            yield from _block_faults(_block(hint), hint.__required_keys__, value, where)
            return
        if typing.get_origin(hint) is Mapping:
            for key, item in value.items():
                yield from _value_faults(typing.get_args(hint)[1], item, f"{where}[{key}]")
            return
    yield f"{where}: is no block"


@functools.cache
def _block(typed_dict: Any) -> dict[str, Any]:
    return _hints(typed_dict, sys.modules[typed_dict.__module__])


def _hints(annotated: Any, module: types.ModuleType) -> dict[str, Any]:
    """Pulumi's Input holds the text "Output[T]", which only its own module could read."""
    return typing.get_type_hints(annotated, vars(module) | {"Output": pulumi.Output, "T": Any})


def _members(hint: Any) -> Iterator[Any]:
    """The alternatives of a type; Pulumi's Input adds futures and Outputs to each."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from _members(member)
    else:
        yield hint
