"""The entries of a stack file that are sound by themselves: what rules between them look at."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from infra.config.cluster import (
    AnyCluster,
    AutopilotCluster,
    Cluster,
    ExistingCluster,
    GkeCluster,
    LocalCluster,
)
from infra.config.model_facts import ModelFacts, UncountedError
from infra.config.model_files import facts, vocabulary
from infra.config.models import (
    CheckSpec,
    ClusterSpec,
    DataSpec,
    Folder,
    InferSpec,
    JobSpec,
    ModelOrigin,
    ServeSpec,
    SliceJobSpec,
    SpmdSpec,
    TrainSpec,
    Workload,
)
from infra.config.parse import Scope, is_list, is_mapping
from infra.tpu.capacity import Rung
from infra.tpu.slice import TpuSlice


@dataclass(frozen=True)
class Entries:
    """Slices and workloads, keyed by their places in the file."""

    slices: dict[str, TpuSlice]
    workloads: dict[str, Workload]
    raw: dict[str, Any]
    """The file as read: a name counts as declared though its entry is at fault."""
    scope: Scope
    """Of the workloads."""
    stack: str
    cluster: Cluster | AnyCluster | None
    """Where the stack runs, if that is sound."""
    online: bool = False
    """Whether a bucket or the hub may be asked about a model."""

    @property
    def trained(self) -> dict[str, TrainSpec]:
        return {w: one for w, one in self.workloads.items() if isinstance(one, TrainSpec)}

    @property
    def served(self) -> dict[str, ServeSpec]:
        return {w: one for w, one in self.workloads.items() if isinstance(one, ServeSpec)}

    @property
    def inferred(self) -> dict[str, InferSpec]:
        return {w: one for w, one in self.workloads.items() if isinstance(one, InferSpec)}

    @property
    def programs(self) -> dict[str, SpmdSpec | CheckSpec]:
        """What takes the hosts of a slice by itself, without Ray Train."""
        return {
            w: one for w, one in self.workloads.items() if isinstance(one, SpmdSpec | CheckSpec)
        }

    @property
    def jobs(self) -> dict[str, JobSpec]:
        return {w: one for w, one in self.workloads.items() if isinstance(one, JobSpec)}

    @property
    def on_tpu(self) -> dict[str, SliceJobSpec | ServeSpec | ClusterSpec]:
        """All that name a slice: jobs first, then serving."""
        open_ = {w: one for w, one in self.workloads.items() if isinstance(one, ClusterSpec)}
        return {**self.trained, **self.inferred, **self.programs, **self.served, **open_}

    @property
    def max_chips(self) -> int | None:
        """That the team's namespace allows, if the file says it."""
        team = self.raw.get("team")
        most = team.get("max_chips") if is_mapping(team) else None
        return most if type(most) is int and most > 0 else None

    @property
    def shapes(self) -> Iterator[tuple[str, TpuSlice]]:
        """Shapes of all slices, by their places."""
        for where, tpu in self.slices.items():
            yield where, tpu
            for index, other in enumerate(tpu.fallback):
                yield f"{where}.fallback[{index}]", other

    @property
    def rungs(self) -> Iterator[tuple[str, TpuSlice, Rung]]:
        """Ways to get the hosts of all shapes, by their places."""
        for where, shape in self.shapes:
            for index, rung in enumerate(shape.capacity):
                yield f"{where}.capacity[{index}]", shape, rung

    @property
    def zones(self) -> tuple[str, ...]:
        """Of the cluster's nodes, where a stack names them."""
        match self.cluster:
            case GkeCluster() | AutopilotCluster() | ExistingCluster():
                return self.cluster.zones
            case _:
                return ()

    def beside(self, tpu: TpuSlice) -> list[TpuSlice]:
        """Other slices in the same Ray cluster. On Kubernetes each workload has its own."""
        if not isinstance(self.cluster, LocalCluster):
            return []
        return [other for other in self.slices.values() if other.name != tpu.name]

    def names(self, key: str, kind: str | None = None) -> Iterator[tuple[str, str]]:
        """Places and declared names of slices, or of workloads of one kind or all."""
        entries = self.raw.get(key)
        for index, entry in enumerate(entries if is_list(entries) else []):
            name = entry.get("name") if is_mapping(entry) else None
            if isinstance(name, str) and kind in (None, entry.get("kind")):
                yield f"raytpu:{key}[{index}].name", name

    def slice_of(self, workload: SliceJobSpec | ServeSpec | ClusterSpec) -> TpuSlice | None:
        """The slice a workload names, if that is declared and sound."""
        return next((tpu for tpu in self.slices.values() if tpu.name == workload.slice), None)

    def data_of(self, workload: TrainSpec) -> DataSpec | None:
        found = self._named(workload.data)
        return found if isinstance(found, DataSpec) else None

    def base_of(self, workload: TrainSpec) -> TrainSpec | None:
        """The run that this one starts from, if that is one above it."""
        above = takewhile(lambda one: one is not workload, self.trained.values())
        return next((one for one in above if one.name == workload.base), None)

    def sizes_of(self, workload: TrainSpec) -> ModelFacts | None:
        """Of the model that a run trains; None if they are not known here."""
        if workload.base is None:
            data = self.data_of(workload)
            return ModelFacts.of_settings(workload.model, vocabulary(data) if data else 0)
        if isinstance(workload.base, Folder):
            with suppress(UncountedError):
                return facts(workload.base, online=self.online)
            return None
        base = self.base_of(workload)
        return self.sizes_of(base) if base else None

    def model_of(self, workload: ServeSpec | InferSpec) -> TrainSpec | None:
        found = self._named(workload.model)
        return found if isinstance(found, TrainSpec) else None

    def _named(self, origin: ModelOrigin) -> Workload | None:
        return next((one for one in self.workloads.values() if one.name == origin), None)
