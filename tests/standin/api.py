"""What a stand-in plays: an API that keeps resources, refuses some, and fills in others."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.standin.wire import Path, plain, put, struct

Args = dict[str, Any]


class RefusedError(Exception):
    """What the API answers instead of doing it, in its own words."""


class UnhealthyError(Exception):
    """A resource was made, and did not become what was waited for."""


@dataclass
class Made:
    """A resource that exists, or is to."""

    stack: str
    type: str
    args: Args
    """As the program declares it."""
    filled: Args = field(default_factory=dict)
    """What the API adds: by path, e.g. nodeConfig.shieldedInstanceConfig."""

    def state(self) -> Args:
        state = plain(struct(self.args))  # a copy
        for path, value in self.filled.items():
            put(state, path, value)
        return state


class Api(ABC):
    version: str
    """Of the provider that is played."""

    def __init__(self) -> None:
        self.made: dict[str, Made] = {}
        self.done: list[tuple[str, str]] = []
        """Each creation, update and deletion with the resource's id, in order."""
        self.configs: dict[str, Args] = {}
        """How each stack's program configures the provider."""

    @abstractmethod
    def faults(self, made: Made) -> Iterable[str]:
        """What is refused of a resource looked at by itself."""

    @abstractmethod
    def identify(self, made: Made) -> str: ...

    @abstractmethod
    def replaces(self, type_: str, path: Path, /) -> bool:
        """Whether a change there can only be had by a new resource."""

    @abstractmethod
    def create(self, made: Made) -> None:
        """Fills in what the API does. Raises RefusedError, or UnhealthyError for one that stays."""

    def update(self, made: Made, args: Args) -> None:
        """As `create`."""
        made.args = args

    @abstractmethod
    def delete(self, made: Made) -> None:
        """Raises RefusedError."""

    def drift(self, _type: str, /) -> Iterable[str]:
        """Paths that the API fills in where the program says nothing, and the provider reports."""
        return ()

    def invoke(self, token: str, _args: Args, /) -> Args:
        raise RefusedError(f"{token} is not played")
