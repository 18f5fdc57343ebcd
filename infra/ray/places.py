"""Where the data of a stack lies in Cloud Storage, and where pods see it.

One bucket for each role if the stack makes them; in a cluster of others, folders of the bucket that
the stack file names.
"""

from dataclasses import dataclass
from typing import assert_never

from infra.config import (
    ExistingCluster,
    Folder,
    Hub,
    InferSpec,
    JobSpec,
    ServeSpec,
    StackConfig,
    TrainSpec,
)
from infra.config.runs import run_id
from infra.gke.names import Role, bucket_name

MODEL_PATH = "/model"
"""Where a model's folder is mounted. Hugging Face's layout is read as files."""


@dataclass(frozen=True)
class Mount:
    """A folder of a bucket, seen by every pod of a workload."""

    bucket: str
    folder: str
    path: str


def storage(config: StackConfig, role: Role) -> str:
    """Address of what has this role."""
    if isinstance(config.cluster, ExistingCluster):
        return f"{config.cluster.storage}/{role}"
    return f"gs://{bucket_name(config, role)}"


def output(config: StackConfig, workload: JobSpec) -> str:
    """What the job writes. A run with other settings or data begins anew, beside the first."""
    if not isinstance(workload, TrainSpec):
        return f"{storage(config, 'data')}/{workload.name}"
    return f"{storage(config, 'checkpoints')}/{workload.name}/{run_id(config, workload)}"


def corpus(config: StackConfig, workload: TrainSpec) -> str:
    if isinstance(workload.data, Folder):
        return workload.data.path
    return output(config, _job(config, workload.data))


def model(workload: ServeSpec) -> str:
    """As the engine is told: a name of the hub, or a path in its pods."""
    return workload.model.hub if isinstance(workload.model, Hub) else MODEL_PATH


def model_mount(config: StackConfig, workload: ServeSpec | InferSpec | TrainSpec) -> Mount | None:
    """None for a model that the engine fetches from the hub, and for a run from random weights."""
    origin = workload.base if isinstance(workload, TrainSpec) else workload.model
    match origin:
        case Hub() | None:
            return None
        case Folder(path=path):
            return _mount(path)
        case str() as trained:
            return _mount(f"{output(config, _job(config, trained))}/export")
        case _:
            assert_never(origin)


def _mount(url: str) -> Mount:
    bucket, _, folder = url.removeprefix("gs://").partition("/")
    return Mount(bucket, folder.strip("/"), MODEL_PATH)


def _job(config: StackConfig, name: str) -> JobSpec:
    found = config.workload(name)
    if not isinstance(found, JobSpec):
        raise TypeError(f"workload {name} writes nothing that another could read")
    return found
