"""The stack file, read into frozen models: the only place that knows its form.

`load` takes what Pulumi hands its program; `stackfile` brings a file into that form, so `raytpu
check` and `pulumi up` say the same about one declaration.
"""

from infra.config.load import StackConfig, load
from infra.config.models import DataSpec, Folder, LocalCluster, ServeSpec, TrainSpec, Workload

__all__ = [
    "DataSpec",
    "Folder",
    "LocalCluster",
    "ServeSpec",
    "StackConfig",
    "TrainSpec",
    "Workload",
    "load",
]
