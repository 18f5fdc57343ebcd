"""A program in the three forms in which users have one, and what it is told."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from workloads.contract import SliceContract
from workloads.errors import UserError
from workloads.slice_group import Rendezvous

SLICE, OUTPUT, ATTEMPT = "RAYTPU_SLICE", "RAYTPU_OUTPUT", "RAYTPU_ATTEMPT"
"""Variables that tell a script what a function gets as its Context."""


@dataclass(frozen=True)
class Context:
    """The first argument of a function."""

    slice: SliceContract
    output: str
    """A folder or URL that all hosts share, for what the program keeps."""
    attempt: int
    """1, and one more after each failure: a program goes on from what it kept."""


@dataclass(frozen=True)
class Part:
    """What one host runs."""

    program: str
    args: tuple[str, ...]
    context: Context
    place: Rendezvous

    @property
    def variables(self) -> dict[str, str]:
        return {
            **self.place.variables,
            SLICE: self.context.slice.to_json(),
            OUTPUT: self.context.output,
            ATTEMPT: str(self.context.attempt),
        }


class Outcome(BaseModel):
    """How a host's part ended, as its process wrote it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    returned: Any = None
    """JSON, of the first host."""
    error: str | None = None
    faults: tuple[str, ...] = ()
    """The user's to mend: to run the program again would not help."""


def form(program: str) -> Literal["function", "file", "module"]:
    if program.endswith(".py"):
        return "file"
    return "function" if ":" in program else "module"


def as_json(program: str, value: Any) -> Any:
    """What the result file will hold. Raises UserError for what JSON cannot say."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"program: {program} returned what is not JSON ({error}); return numbers, texts, lists "
            "and dicts of them, or None"
        ) from None
