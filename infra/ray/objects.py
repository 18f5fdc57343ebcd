"""All Kubernetes objects of a stack, in the order in which they are made."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infra.config import (
    CheckSpec,
    ClusterSpec,
    DataSpec,
    InferSpec,
    JobSpec,
    ServeSpec,
    SpmdSpec,
    StackConfig,
    TrainSpec,
    Workload,
)
from infra.gke.compute_class import compute_class
from infra.ray import manifests, namespace, secrets
from infra.ray.waits import must_finish

Manifest = dict[str, Any]

_POD_CHANGES = ("headGroupSpec", "workerGroupSpecs[*].template", "rayVersion")
"""Parts of a Ray cluster that the operator never carries over to pods that run."""


@dataclass(frozen=True)
class KubernetesObject:
    """A manifest, and what its registration takes beyond it."""

    key: str
    """Unique in the stack, e.g. "RayJob/corpus"."""
    manifest: Manifest
    after: tuple[str, ...] = ()
    """Keys of what must exist before, as its own wait sees it."""
    finishes: bool = False
    """Whether it is a job that must have succeeded before what comes after; else it must begin."""
    replace_on: tuple[str, ...] = ()
    """Changes that take a new object: the operator would ignore them."""
    ignore: tuple[str, ...] = ()
    """What others change with good reason."""

    @property
    def kind(self) -> str:
        return self.manifest["kind"]

    @property
    def shared(self) -> bool:
        """Whether its name is one of the whole cluster, where others have theirs."""
        return "namespace" not in self.manifest["metadata"]


def objects(config: StackConfig) -> tuple[KubernetesObject, ...]:
    """Raises TypeError for a stack without namespace, that is, the local one."""
    made = [*_shared(config)]
    base = tuple(one.key for one in made)
    for workload in _in_order(config):
        needs = [_object(m, after=base) for m in _needs(config, workload)]
        made += [*needs, _workload(config, workload, (*base, *(one.key for one in needs)))]
    return tuple(made)


def workload_key(workload: Workload) -> str:
    if isinstance(workload, JobSpec):
        return f"RayJob/{workload.name}"
    kinds = {"serve": "RayService", "cluster": "RayCluster"}
    return f"{kinds[workload.kind]}/{workload.name}"


def _shared(config: StackConfig) -> Iterator[KubernetesObject]:
    first, *others = namespace.objects(config)
    space = _object(first)
    yield space
    yield from (_object(manifest, after=(space.key,)) for manifest in others)
    for tpu in config.slices:
        if tpu.provision == "compute_class":
            yield _object(compute_class(config, tpu), after=(space.key,))


def _in_order(config: StackConfig) -> list[Workload]:
    """Checks, then data, then training, then what uses the model: each after what it reads."""
    kinds = ("check", "data", "train", "infer", "spmd", "serve", "cluster")
    return sorted(config.workloads, key=lambda workload: kinds.index(workload.kind))


def _needs(config: StackConfig, workload: Workload) -> list[Manifest]:
    made = [namespace.service_account(config, workload), *secrets.objects(config, workload)]
    if isinstance(workload, ServeSpec) and (
        budget := namespace.disruption_budget(config, workload)
    ):
        made.append(budget)
    return made


def _workload(config: StackConfig, workload: Workload, needs: tuple[str, ...]) -> KubernetesObject:
    after = (*needs, *_earlier(config, workload))
    key = workload_key(workload)
    finishes = must_finish(config, workload)
    match workload:
        case DataSpec() | TrainSpec() | InferSpec() | SpmdSpec() | CheckSpec():
            manifest = manifests.ray_job(config, workload)
            # A job runs once, whatever is changed in it afterwards: other terms are another job.
            return KubernetesObject(key, manifest, after, finishes, replace_on=("spec",))
        case ServeSpec():
            manifest = manifests.ray_service(config, workload)
            parts = _POD_CHANGES if workload.upgrade == "in_place" else ()
            replace = tuple(f"spec.rayClusterConfig.{part}" for part in parts)
            return KubernetesObject(key, manifest, after, replace_on=replace)
        case ClusterSpec():
            manifest = manifests.ray_cluster(config, workload)
            replace = tuple(f"spec.{part}" for part in _POD_CHANGES)
            # The autoscaler's, from the first idle slice on.
            ignore = ("spec.workerGroupSpecs[*].replicas", "spec.workerGroupSpecs[*].scaleStrategy")
            return KubernetesObject(key, manifest, after, replace_on=replace, ignore=ignore)


def _earlier(config: StackConfig, workload: Workload) -> tuple[str, ...]:
    """Jobs whose output this one reads."""
    origins: list[Any] = []
    if isinstance(workload, TrainSpec):
        origins = [workload.data, workload.base]
    if isinstance(workload, ServeSpec | InferSpec):
        origins = [workload.model]
    names = [origin for origin in origins if isinstance(origin, str)]
    return tuple(workload_key(config.workload(name)) for name in names)


def _object(manifest: Manifest, after: tuple[str, ...] = ()) -> KubernetesObject:
    return KubernetesObject(f"{manifest['kind']}/{manifest['metadata']['name']}", manifest, after)
