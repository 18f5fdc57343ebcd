"""What the local stack's dynamic providers share: comparing, and errors of one line."""

import functools
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar

import pulumi
from pulumi.dynamic import DiffResult, Resource

from infra.errors import LocalError
from infra.local import engine

P = ParamSpec("P")
T = TypeVar("T")

Props = dict[str, Any]

COMPONENT = "raytpu:local:LocalStack"
"""Type of the component that holds all resources of the local stack."""


def user_errors(method: Callable[P, T]) -> Callable[P, T]:
    """Makes a LocalError reach the user as one line.

    Pulumi sends the formatted traceback of whatever a dynamic provider raises. The limit is the
    process's, and so is the mercy: other errors of the same run lose their traceback too.
    """

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        engine.end_with_engine()
        try:
            return method(*args, **kwargs)
        except LocalError as error:
            sys.tracebacklimit = 0
            raise LocalError(str(error)) from None

    return wrapped


def urn(resource: Resource, name: str) -> str:
    """The engine's name for a resource of the local stack: its provider reports progress to it.

    Composed, not asked of the engine: an Output of the parent would make the parent, and so all of
    its children, something that each child waits for.
    """
    type_ = resource._resource_type_name  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # set by the SDK on each subclass, offered nowhere else
    place = f"{pulumi.get_stack()}::{pulumi.get_project()}"
    return f"urn:pulumi:{place}::{COMPONENT}$pulumi-python:{type_}::{name}"


def changed(olds: Mapping[str, Any], news: Mapping[str, Any], keys: Collection[str]) -> list[str]:
    return [key for key in keys if olds.get(key) != news.get(key)]


def replacement(olds: Props, news: Props, keys: Collection[str]) -> DiffResult:
    """A change of any of `keys` ends the old one before the new one takes its name and ports."""
    differing = changed(olds, news, keys)
    return DiffResult(changes=bool(differing), replaces=differing, delete_before_replace=True)
