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

GKE: dict[str, Any] = {
    "environment": "dev",
    "cluster": {
        "mode": "gke",
        "project": "acme-ml",
        "location": "us-east5",
        "zones": ["us-east5-b"],
        "version": "1.35.3-gke.1737000",
        "kuberay": "1.6",
    },
    "team": {"name": "research", "cost_center": "ml-research"},
    "images": {"ray": "example.dev/ray:1", "vllm": "example.dev/vllm:1"},
    "slices": [
        {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"},
        {"name": "chat", "machine_type": "ct6e-standard-8t", "topology": "2x4"},
    ],
    "workloads": [
        {"name": "corpus", "kind": "data", "vocab_size": 2048, "sequence_length": 128},
        SOUND["workloads"][1],
        {
            "name": "chat",
            "kind": "serve",
            "slice": "chat",
            "engine": "vllm",
            "model": {"hub": "Qwen/Qwen3-4B"},
        },
    ],
}


def changed(**changes: Any) -> dict[str, Any]:
    """The sound local stack with values put in by path, e.g. `slices__0__topology="4x8"`.

    The index after a list's last one appends.
    """
    return _changed(SOUND, changes)


def on_gke(**changes: Any) -> dict[str, Any]:
    """As `changed`, of the sound stack on GKE."""
    return _changed(GKE, changes)


def on_autopilot(**changes: Any) -> dict[str, Any]:
    return on_gke(cluster__mode="autopilot", **changes)


def on_existing(**changes: Any) -> dict[str, Any]:
    cluster = {"mode": "existing", "storage": "gs://acme-raytpu", "kuberay": "1.6"}
    return on_gke(cluster=cluster, **changes)


def _changed(sound: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    stack: Any = copy.deepcopy(sound)
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


def read(declared: dict[str, Any], **how: Any) -> StackConfig:
    return load(pulumi(declared), **{"stack": "some", **how})


def remarks(declared: dict[str, Any], **how: Any) -> list[str]:
    """The lines of what is allowed; a slice without a workload is not what a test is about."""
    lines = [str(remark) for remark in read(declared, **how).remarks]
    return [line for line in lines if "stands idle" not in line]


def only(lines: list[str], where: str) -> str:
    """The one line there is, which is of this place of the file."""
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"raytpu:{where}: "), lines[0]
    return lines[0]


def faults(declared: dict[str, Any], **how: Any) -> list[str]:
    """The lines a user sees; none for a sound stack."""
    try:
        read(declared, **how)
    except ConfigError as error:
        return str(error).splitlines()
    return []
