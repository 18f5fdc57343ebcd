"""The stack file, read into frozen models: the only place that knows its form.

`load` takes what Pulumi hands its program; `stackfile` brings a file into that form, so `raytpu
check` and `pulumi up` say the same about one declaration.
"""

from infra.config.cluster import (
    AutopilotCluster,
    Cluster,
    ExistingCluster,
    GkeCluster,
    LocalCluster,
)
from infra.config.load import StackConfig, load
from infra.config.models import (
    CheckSpec,
    ClusterSpec,
    DataSpec,
    Folder,
    Hub,
    Images,
    InferSpec,
    JobSpec,
    ServeSpec,
    SliceJobSpec,
    SpmdSpec,
    Team,
    TrainSpec,
    Workload,
)

__all__ = [
    "AutopilotCluster",
    "CheckSpec",
    "Cluster",
    "ClusterSpec",
    "DataSpec",
    "ExistingCluster",
    "Folder",
    "GkeCluster",
    "Hub",
    "Images",
    "InferSpec",
    "JobSpec",
    "LocalCluster",
    "ServeSpec",
    "SliceJobSpec",
    "SpmdSpec",
    "StackConfig",
    "Team",
    "TrainSpec",
    "Workload",
    "load",
]
