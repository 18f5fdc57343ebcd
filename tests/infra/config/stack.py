"""A sound stack, and the ways to spoil it."""

import copy
import json
from typing import Any

from infra.config import StackConfig, load
from infra.errors import ConfigError

SOUND: dict[str, Any] = {
    "environment": "local",
    "cluster": {"mode": "local"},
    "slices": [
        {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"},
        {"name": "chat", "machine_type": "ct6e-standard-4t", "topology": "2x2"},
    ],
    "workloads": [
        {"name": "corpus", "kind": "data", "vocab_size": 2048, "sequence_length": 128},
        {
            "name": "pretrain",
            "kind": "train",
            "slice": "train",
            "data": "corpus",
            "mesh": {"data": 16},
            "steps": 300,
            "global_batch": 32,
        },
        {
            "name": "chat",
            "kind": "serve",
            "slice": "chat",
            "model": "pretrain",
            "mesh": {"tensor": 4},
            "max_sequence_length": 128,
        },
    ],
}


def changed(**changes: Any) -> dict[str, Any]:
    """The sound stack with values put in by path, e.g. `slices__0__topology="4x8"`.

    The index after a list's last one appends.
    """
    stack: Any = copy.deepcopy(SOUND)
    for path, value in changes.items():
        *steps, last = path.split("__")
        target = stack
        for step in steps:
            target = target[int(step) if isinstance(target, list) else step]
        if isinstance(target, list):
            target[int(last) : int(last) + 1] = [value]
        else:
            target[last] = value
    return stack


def pulumi(stack: dict[str, Any]) -> dict[str, str]:
    """As the engine hands it to its program."""
    return {
        f"raytpu:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in stack.items()
    }


def read(stack: dict[str, Any], **how: Any) -> StackConfig:
    return load(pulumi(stack), stack="local", **how)


def faults(stack: dict[str, Any], **how: Any) -> list[str]:
    """The lines a user sees; none for a sound stack."""
    try:
        read(stack, **how)
    except ConfigError as error:
        return str(error).splitlines()
    return []
