"""Stacks on GKE to test with: those of the project, and small ones."""

import json
from pathlib import Path
from typing import Any

from infra.cli.check import check
from infra.config import StackConfig, load

ROOT = Path(__file__).parents[3]
_FILES = {
    path.stem.removeprefix("Pulumi."): path
    for path in sorted((ROOT / "stacks").rglob("Pulumi.*.yaml"))
}
ON_GOOGLE = sorted({*_FILES} - {"local", "existing"})
"""The project's own stacks that make a cluster."""

SLICE = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}


def declared(name: str) -> StackConfig:
    """One of the project's own stacks."""
    report = check(str(_FILES[name]))
    assert report.config is not None, report
    return report.config


def stack(
    *slices: dict[str, Any],
    name: str = "dev",
    secret_keys: tuple[str, ...] = (),
    cluster: dict[str, Any] | None = None,
    workloads: list[dict[str, Any]] | None = None,
    **entries: Any,
) -> StackConfig:
    """A sound stack of mode gke with these slices."""
    where = {"mode": "gke", "project": "acme-ml", "location": "us-east5", "zones": ["us-east5-b"]}
    values = {
        "environment": "dev",
        "cluster": where | (cluster or {}),
        "team": {"name": "research", "cost_center": "ml"},
        "images": {
            "ray": "us-east5-docker.pkg.dev/acme-ml/raytpu-dev/ray:1",
            "vllm": "us-east5-docker.pkg.dev/acme-ml/raytpu-dev/vllm:1",
        },
        "slices": [*slices],
        "workloads": workloads or [],
        **entries,
    }
    texts = {
        f"raytpu:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }
    return load(texts, stack=name, secret_keys=secret_keys)
