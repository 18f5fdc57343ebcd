"""What was measured before, on disk: one file a program, named by all that decides it.

The code counts as a whole: a changed line of the model, the step or this package measures anew.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from pydantic import ValidationError

from workloads.preflight.program import Measured, ServeStep, TrainStep

PACKAGES = ("jax", "jaxlib", "libtpu", "flax", "optax")
CODE = ("model", "preflight", "serve", "train")
"""Folders of workloads/ that a step, or what is said of it, is made of."""


class Cache:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ground = hashlib.sha256(
            json.dumps([_code(), {name: version(name) for name in PACKAGES}]).encode()
        )

    def read(self, program: TrainStep | ServeStep) -> Measured | None:
        """None if it was not measured, or the file says nothing that can be read."""
        with contextlib.suppress(OSError, ValidationError):
            return Measured.model_validate_json(self._path(program).read_bytes())
        return None

    def write(self, program: TrainStep | ServeStep, measured: Measured) -> None:
        """A folder that takes no file is no fault: the next run compiles again."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._path(program)
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_text(measured.model_dump_json())
            fresh.replace(path)  # a reader sees a whole file or none

    def _path(self, program: TrainStep | ServeStep) -> Path:
        key = self._ground.copy()
        key.update(json.dumps(program.decisive(), sort_keys=True).encode())
        return self._folder / f"{key.hexdigest()[:32]}.json"


def _code() -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in _files()}


def _files() -> Iterator[Path]:
    root = Path(__file__).parents[1]
    yield root / "settings.py"
    for folder in CODE:
        yield from sorted((root / folder).glob("*.py"))
