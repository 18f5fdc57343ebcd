"""GKE's versions, and the least one that each feature needs.

Sources: GKE's documentation as of 2026-08, each feature's own page; where two pages disagree, the
later version. Multislice and reservations in a compute class need less than what they come with.
Blocks of a reservation in a class are documented for GPUs alone, so no version is claimed for TPUs.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from infra.names import fault
from infra.tpu.capacity import Kind
from infra.tpu.slice import TpuSlice

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+)(?:-gke\.(\d+))?)?")


class GkeVersion(NamedTuple):
    """Ordered as GKE orders them."""

    major: int
    minor: int
    patch: int = 0
    build: int = 0

    @classmethod
    def parse(cls, text: str) -> "GkeVersion":
        """Raises the fault of a validator for anything else."""
        found = _VERSION.fullmatch(text)
        if found is None:
            raise fault("is no version of GKE", 'write one such as "1.35.3-gke.1737000" or "1.35"')
        return cls(*(int(part) for part in found.groups() if part is not None))

    def __str__(self) -> str:
        build = f"-gke.{self.build}" if self.build else ""
        return f"{self.major}.{self.minor}.{self.patch}{build}"


def reaches(text: str, least: GkeVersion) -> bool:
    """Whether a version as written is so new. For parts left out GKE takes the newest."""
    given = GkeVersion.parse(text)[: len(re.findall(r"[0-9]+", text))]
    return given >= least[: len(given)]


class Requirement(NamedTuple):
    feature: str
    """In the plural."""
    version: GkeVersion
    source: str
    """The page of GKE's documentation."""


def _needs(feature: str, version: str, source: str) -> Requirement:
    return Requirement(feature, GkeVersion.parse(version), source)


_ABOUT_CLASSES = "About custom ComputeClasses"
_ABOUT_TPUS = "About TPUs in GKE"
_ABOUT_TPU7X = "About Ironwood (TPU7x) in GKE"

RAY_OPERATOR = _needs(
    "clusters with the Ray operator add-on", "1.30.0-gke.1747000", "Enable the Ray operator on GKE"
)
FLEX_START = _needs("TPUs by flex-start", "1.33.0-gke.1712000", "About flex-start")
GENERATIONS = {
    # Of Ray's own documentation; a comment in Google's Ray samples says 1.31.1-gke.1846000.
    "v6e": _needs("v6e slices", "1.31.2-gke.1115000", "Start GKE cluster with TPUs for KubeRay"),
    "tpu7x": _needs("tpu7x slices", "1.34.0-gke.2201000", _ABOUT_TPU7X),
}
TPU7X_ON_AUTOPILOT = _needs("tpu7x slices on Autopilot", "1.34.1-gke.3084001", _ABOUT_TPU7X)

COMPUTE_CLASS = _needs("compute classes of TPUs", "1.31.2-gke.1518000", _ABOUT_CLASSES)
CLASS_SELECTORS = _needs(
    "compute classes beside other node selectors", "1.32.3-gke.1499000", _ABOUT_CLASSES
)
CLASS_ZONES = _needs("zones in a compute class", "1.33.1-gke.1545000", _ABOUT_CLASSES)
CLASS_PLACEMENT = _needs(
    "placement policies in a compute class", "1.33.2-gke.1335000", _ABOUT_CLASSES
)
CLASS_POOLS = {
    "v6e": _needs("node pools of v6e by a compute class", "1.32.0", _ABOUT_TPUS),
    "tpu7x": _needs("node pools of tpu7x by a compute class", "1.34.1-gke.2541000", _ABOUT_TPUS),
}
CLASS_WITHOUT_AUTO_PROVISIONING = _needs(
    "compute classes without node auto-provisioning", "1.33.3-gke.1136000", _ABOUT_CLASSES
)
CLASS_RESERVATION_ZONES = _needs(
    "zones of a reservation in a compute class", "1.34.1-gke.3759000", _ABOUT_CLASSES
)


def requirements(slices: Iterable[TpuSlice], *, autopilot: bool = False) -> list[Requirement]:
    """Without which something that is declared is refused or never comes, each once."""
    found = [RAY_OPERATOR]
    for tpu in slices:
        for shape in tpu.shapes:
            found += _of_shape(shape, autopilot=autopilot)
    return [*dict.fromkeys(found)]


def _of_shape(shape: TpuSlice, *, autopilot: bool) -> Iterator[Requirement]:
    generation = shape.generation.name
    if generation in GENERATIONS:
        yield GENERATIONS[generation]
    if generation == "tpu7x" and autopilot:
        yield TPU7X_ON_AUTOPILOT
    if "flex-start" in kinds(shape):
        yield FLEX_START
    if shape.provision == "compute_class":
        yield from (COMPUTE_CLASS, CLASS_SELECTORS, CLASS_ZONES)
        if generation in CLASS_POOLS:
            yield CLASS_POOLS[generation]
        if shape.workload_policy:
            yield CLASS_PLACEMENT


def kinds(shape: TpuSlice) -> set[Kind]:
    """Of capacity that a shape may come by."""
    return {rung.kind for rung in shape.capacity}
