"""What a pod may ask for on a TPU node: the machine without what Google and the node keep back.

Sources: GKE, "Plan GKE Standard node sizes", read 2026-08; for what Linux keeps before GKE counts,
which that page leaves out, the cluster autoscaler (729ba95, gce/reserved.go), which foretells by it
whether a node that does not exist yet would hold a pod. High confidence for both; what the node's
own pods take is our allowance for logging, metrics, networking, the TPU device plugin and the
sidecar that mounts buckets.
"""

import math
from typing import NamedTuple

from infra.tpu.catalog import Machine

NODE_PODS_CPUS = 2
NODE_PODS_MEMORY_GIB = 4

# Of the first so many cores or GiB, the next so many, ..., GKE keeps this part.
_CPU_KEPT = ((1, 0.06), (1, 0.01), (2, 0.005), (math.inf, 0.0025))
_MEMORY_KEPT = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (math.inf, 0.02))
_EVICTION_GIB = 100 / 1024
_KERNEL_PART = 1 / 64
_KERNEL_GIB = (16 + 64) / 1024

IMAGE_GIB = 20
"""Of the boot disk, for the images of pods."""
AUTOPILOT_DISK_GIB = 100
"""Autopilot gives no pod with an accelerator much more (medium confidence)."""


class Allocatable(NamedTuple):
    """Whole units, rounded down."""

    cpus: int
    memory_gib: int


def allocatable(machine: Machine) -> Allocatable:
    """For the one pod of a TPU node: GKE wants all of its chips in one pod."""
    cpus, memory_gib = for_all_pods(machine.vcpus, machine.memory_gib)
    return Allocatable(
        math.floor(cpus - NODE_PODS_CPUS), math.floor(memory_gib - NODE_PODS_MEMORY_GIB)
    )


def for_all_pods(vcpus: int, memory_gib: int) -> tuple[float, float]:
    """CPUs and GiB of a machine that its pods share, the node's own among them."""
    kernel_gib = memory_gib * _KERNEL_PART + _KERNEL_GIB
    kept_gib = kernel_gib + _kept(memory_gib, _MEMORY_KEPT) + _EVICTION_GIB
    return vcpus - _kept(vcpus, _CPU_KEPT), memory_gib - kept_gib


def pod_disk_gib(boot_disk_gib: int, *, autopilot: bool) -> int:
    """What the one pod of a TPU node may write: models of the hub and compiled programs.

    GKE keeps half of a small boot disk and 100 GiB of a large one, and a tenth for evictions.
    """
    kept = min(boot_disk_gib / 2, 6 + 0.35 * boot_disk_gib, 100)
    room_gib = math.floor(boot_disk_gib - kept - boot_disk_gib / 10 - IMAGE_GIB)
    return min(room_gib, AUTOPILOT_DISK_GIB) if autopilot else room_gib


def _kept(size: float, bands: tuple[tuple[float, float], ...]) -> float:
    kept = 0.0
    for width, part in bands:
        kept += min(size, width) * part
        size -= min(size, width)
    return kept
