"""The stacks that the project ships, and variations of them, as the program sees them."""

from pathlib import Path
from typing import Any

from infra.config import DataSpec, StackConfig, Team, TrainSpec, load
from infra.config.stackfile import read
from infra.ray.objects import KubernetesObject, objects
from tests.infra.config.stack import pulumi

ROOT = Path(__file__).parents[3]
FILES = {
    path.stem.removeprefix("Pulumi."): path
    for path in sorted(ROOT.glob("stacks/**/Pulumi.*.yaml"))
    if path.stem != "Pulumi.local"
}
"""All stacks but the local one, by name."""


def shipped(stack: str) -> StackConfig:
    return load(read(FILES[stack]), stack=stack, encrypted=True)


def gke(
    slices: list[dict[str, Any]], workloads: list[dict[str, Any]], **changes: Any
) -> StackConfig:
    """A stack on GKE with these slices and workloads; `cluster` adds to its cluster."""
    secret_keys = ["raytpu:workloads", *changes.pop("secret_keys", [])]
    cluster = {
        "mode": "gke",
        "project": "acme-ml",
        "location": "us-east5",
        "zones": ["us-east5-b"],
        "version": "1.35.3-gke.1737000",
        **changes.pop("cluster", {}),
    }
    stack = {
        "environment": "dev",
        "cluster": cluster,
        "team": {"name": "research", "cost_center": "ml"},
        "images": {"ray": "registry.example/ray:1", "vllm": "registry.example/vllm:1"},
        "slices": slices,
        "workloads": workloads,
        **changes,
    }
    return load(pulumi(stack), stack="dev", secret_keys=secret_keys)


def job(config: StackConfig, name: str) -> DataSpec | TrainSpec:
    found = config.workload(name)
    assert isinstance(found, DataSpec | TrainSpec)
    return found


def team(config: StackConfig) -> Team:
    assert config.team is not None
    return config.team


def made(config: StackConfig) -> dict[str, KubernetesObject]:
    return {one.key: one for one in objects(config)}


def cluster_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """The Ray cluster within a RayJob, RayService or RayCluster."""
    spec = manifest["spec"]
    return spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec


TRAIN = {
    "name": "pretrain",
    "kind": "train",
    "slice": "train",
    "data": {"path": "gs://corpora/english"},
    "mesh": {"data": 4, "tensor": 4},
    "steps": 100,
    "global_batch": 32,
}
SERVE = {
    "name": "chat",
    "kind": "serve",
    "slice": "chat",
    "engine": "vllm",
    "model": {"hub": "Qwen/Qwen3-4B"},
}
