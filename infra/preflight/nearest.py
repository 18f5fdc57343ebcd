"""What would fit in place of a workload that does not: the nearest mesh, batch or slice.

Candidates come nearest first: what leaves the slice and the learning alone, then a smaller batch,
then more chips. An estimate from what the declared one needs passes over those that cannot fit;
what is proposed has been compiled.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

from infra.config import ServeSpec, TrainSpec
from infra.preflight.programs import Subject, steps
from infra.tpu import topology as topologies
from infra.tpu.catalog import MACHINES
from infra.tpu.slice import SliceSpec, TpuSlice
from workloads.preflight.program import Answer, Measured, ServeStep, TrainStep
from workloads.settings import MeshSettings, TrainMesh

TRIES = 3
"""Compilations of each kind of change: one takes up to minutes, and what is far is no help."""
Ask = Callable[[TrainStep | ServeStep], Answer]


@dataclass(frozen=True)
class Need:
    """Of the declared workload, a device."""

    argument_bytes: int
    scratch_bytes: int
    """0 if it is not known, as the arguments alone are too many."""
    limit_bytes: int

    @classmethod
    def of(cls, measured: Iterable[Measured]) -> "Need":
        worst = max(measured, key=lambda one: one.hbm_bytes or one.argument_bytes)
        whole = worst.hbm_bytes or worst.argument_bytes
        return cls(worst.argument_bytes, whole - worst.argument_bytes, worst.limit_bytes)


@dataclass(frozen=True)
class Proposal:
    said: str
    """As the stack file would have it."""
    hbm_bytes: int


@dataclass(frozen=True)
class _Change:
    said: str
    subject: Subject
    expected_bytes: float


def nearest(subject: Subject, need: Need, ask: Ask) -> Proposal | None:
    """The first change with which every step fits; None if none was found."""
    for kind in _kinds(subject, need):
        promising = (change for change in kind if change.expected_bytes <= need.limit_bytes)
        for change in islice(promising, TRIES):
            found = [ask(step).measured for step in steps(change.subject)]
            sizes = [one.hbm_bytes for one in found if one and one.fits and one.hbm_bytes]
            if len(sizes) == len(found):
                return Proposal(change.said, max(sizes))
    return None


def _kinds(subject: Subject, need: Need) -> list[Iterator[_Change]]:
    meshes, batches = _meshes(subject, need), _batches(subject, need)
    if isinstance(subject.workload, TrainSpec):
        parts = _parts(subject, subject.workload, need)
        return [meshes, parts, batches, _larger_slices(subject, subject.workload, need)]
    return [meshes, batches, _larger_replicas(subject, subject.workload, need)]


def _meshes(subject: Subject, need: Need) -> Iterator[_Change]:
    """Those that share a copy among more devices, as few more as possible; fsdp before tensor."""
    mesh = _mesh(subject)
    sizes = [size for size in range(1, mesh.devices + 1) if mesh.devices % size == 0]
    cuts = [
        TrainMesh(data=mesh.devices // (fsdp * tensor), fsdp=fsdp, tensor=tensor)
        for fsdp, tensor in product(sizes, repeat=2)
        if mesh.devices % (fsdp * tensor) == 0 and fsdp * tensor > _sharing(mesh)
    ]
    for cut in sorted(cuts, key=lambda cut: (_sharing(cut), cut.tensor)):
        if _divides(subject, cut):
            yield _change(subject, need, f"mesh {cut}", {"mesh": _as_mesh(subject, cut)})


def _parts(subject: Subject, workload: TrainSpec, need: Need) -> Iterator[_Change]:
    """The same update from a batch in more and more parts, and with activations computed anew."""
    declared, devices = workload.gradient_accumulation_steps, workload.mesh.devices
    parts = declared
    while workload.global_batch % (parts * devices) == 0:
        for remat in dict.fromkeys([workload.remat, "layers"]):
            update = {"gradient_accumulation_steps": parts, "remat": remat}
            said = " and ".join(
                f"{key} {value}" for key, value in update.items() if value != getattr(workload, key)
            )
            if said:
                yield _change(subject, need, said, update)
        parts *= 2


def _batches(subject: Subject, need: Need) -> Iterator[_Change]:
    workload = subject.workload
    if isinstance(workload, TrainSpec):
        key, batch = "global_batch", workload.global_batch
        least = workload.mesh.devices * workload.gradient_accumulation_steps
    else:
        key, batch, least = "max_batch", workload.max_batch, _mesh(subject).data
    while batch // 2 >= least:
        batch = batch // 2 // least * least
        yield _change(subject, need, f"{key} {batch}", {key: batch})


def _larger_slices(subject: Subject, workload: TrainSpec, need: Need) -> Iterator[_Change]:
    """More chips for each copy's batch, or for the copy itself."""
    tpu, mesh, parts = subject.tpu, workload.mesh, workload.gradient_accumulation_steps
    for topology in topologies.topologies(tpu.machine):
        larger = _resolved(tpu, tpu.machine.name, topology)
        times, rest = divmod(larger.chips, tpu.chips)
        if times < 2 or rest or not larger.reserved_whole:  # noqa: PLR2004 - no larger
            continue
        for axis in ("data", "fsdp"):
            cut = TrainMesh(**{**mesh.axes, axis: mesh.axes[axis] * times})
            if _divides(subject, cut) and workload.global_batch % (cut.devices * parts) == 0:
                said = f"topology {topology} with mesh {cut}"
                moved = replace(subject, tpu=larger)
                yield _change(moved, need, said, {"mesh": cut}, before=subject)


def _larger_replicas(subject: Subject, workload: ServeSpec, need: Need) -> Iterator[_Change]:
    """Slices of the generation with more chips for a replica, on as few hosts as possible."""
    tpu = subject.tpu
    larger = [
        _resolved(tpu, machine.name, topology)
        for machine in MACHINES.values()
        if machine.generation == tpu.generation.name
        for topology in topologies.topologies(machine)
        if topologies.chips(topology) > tpu.chips
    ]
    for one in sorted(larger, key=lambda one: (one.chips, one.hosts)):
        cut = TrainMesh(tensor=one.devices)
        if _divides(subject, cut):
            said = f"topology {one.topology} on {one.machine.name} with mesh {cut}"
            moved = replace(subject, tpu=one, workload=workload)
            yield _change(moved, need, said, {"mesh": _as_mesh(subject, cut)}, before=subject)


def _change(
    subject: Subject,
    need: Need,
    said: str,
    update: dict[str, Any],
    *,
    before: Subject | None = None,
) -> _Change:
    """The subject with other settings, and what it is expected to need."""
    changed = replace(subject, workload=subject.workload.model_copy(update=update))
    arguments, scratch = _weight(changed, before or subject)
    return _Change(said, changed, arguments * need.argument_bytes + scratch * need.scratch_bytes)


def _weight(after: Subject, before: Subject) -> tuple[float, float]:
    """Times what arguments and scratch are expected to be: as if each device held an equal part."""
    if isinstance(after.workload, TrainSpec) and isinstance(before.workload, TrainSpec):
        new, old = after.workload, before.workload
        kept = 1 / after.model.layers if new.remat != old.remat else 1.0
        return _sharing(old.mesh) / _sharing(new.mesh), kept * _rows(new) / _rows(old)
    new_mesh, old_mesh = _mesh(after), _mesh(before)
    shared = old_mesh.tensor / new_mesh.tensor
    batch = _served_rows(after) / _served_rows(before)
    return shared * min(1.0, batch * old_mesh.data / new_mesh.data), shared


def _rows(workload: TrainSpec) -> float:
    """Of a step's part, for each device."""
    return workload.global_batch / workload.gradient_accumulation_steps / workload.mesh.devices


def _served_rows(subject: Subject) -> int:
    return subject.workload.max_batch if isinstance(subject.workload, ServeSpec) else 1


def _mesh(subject: Subject) -> MeshSettings:
    workload = subject.workload
    if isinstance(workload, TrainSpec):
        return workload.mesh
    return workload.mesh_on(subject.tpu.devices)


def _as_mesh(subject: Subject, cut: TrainMesh) -> MeshSettings:
    if isinstance(subject.workload, TrainSpec):
        return cut
    return MeshSettings(data=cut.data, tensor=cut.tensor)


def _divides(subject: Subject, cut: TrainMesh) -> bool:
    """Whether the workload's rules allow such a mesh."""
    if subject.model.uneven(cut.axes):
        return False
    if isinstance(subject.workload, TrainSpec):
        return cut.data % subject.tpu.count == 0
    return cut.fsdp == 1 and subject.workload.max_batch % cut.data == 0


def _sharing(mesh: MeshSettings) -> int:
    """Devices that share a copy."""
    return mesh.devices // mesh.data


def _resolved(tpu: TpuSlice, machine: str, topology: str) -> TpuSlice:
    spec = SliceSpec(name=tpu.name, count=tpu.count, machine_type=machine, topology=topology)
    return TpuSlice.resolve(spec)
