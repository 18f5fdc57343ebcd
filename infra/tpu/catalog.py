"""Facts about Cloud TPU on GKE and in Ray; nothing here is derived.

Where a fact comes from:

- GKE: the tables of its cluster autoscaler (GoogleCloudPlatform/cluster-autoscaler 7d25050,
  2026-08), "Plan TPUs in GKE", and the rules xpk (367c838) and cluster-toolkit (1047080) share.
- HBM: the Cloud TPU pages of each generation and MaxText's hardware table (e591f30).
- vCPUs and memory: the autoscaler's table, which counts whole GiB. For tpu7x it has 992, the Cloud
  TPU page 960: the smaller is taken, since a pod that asks for more than there is never starts.
- Zones: the Cloud TPU and Compute pages of zones, and "About flex-start", read 2026-08. They lag
  behind what Google sells, so a zone that they lack is not known rather than wrong, except for v4,
  which there is in one zone alone.
- Flex-start and boot disks: the autoscaler's tables. They name no disk for v4 and v5p.
- Devices of a chip: libtpu's own topologies as JAX shows them, which the tests ask. vLLM's engine
  for TPU counts the same devices (vllm-project/tpu-inference 1753).
- Ray: the installed ray 2.60, `ray._private.accelerators.tpu`; the tests compare.

All are of high confidence except the HBM of v5p (95 GiB; others round it to 96) and the largest
slice of v4 and v5p (documents and code of GKE disagree; both lie above what Ray takes). Which rows
of GKE and Ray disagree, and what follows, is in docs/slices.md.
"""

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Generation:
    name: str
    gke_accelerator: str
    """Value of the node label cloud.google.com/gke-tpu-accelerator."""
    ray_version: str
    """Ray's own spelling; other spellings pass one of its helpers and fail the next."""
    cores_per_chip: int
    """TensorCores, which Ray's names of shapes count."""
    devices_per_chip: int
    """As JAX sees a chip, and a mesh counts it: of tpu7x each core with half of the HBM is one; the
    two cores of a v4 or v5p are one together."""
    hbm_gib_per_chip: int
    max_chips: int
    """Largest slice GKE makes."""
    gke_topologies: tuple[str, ...]
    """Those GKE lists."""
    gke_custom: bool
    """Whether GKE also makes AxBxC with A<=B<=C, each a multiple of a cube's edge."""
    ray_topologies: tuple[str, ...]
    """Ray's table as far as GKE's rule allows, smallest first. Ray refuses all others."""
    zones: tuple[str, ...]
    """Where Google documents it."""
    all_zones: bool
    """Whether there is no other zone for certain."""
    flex_start: bool
    flex_start_zones: tuple[str, ...]
    """Where Google documents that; none where it does not say."""
    boot_disk: str | None
    """The type of boot disk that its machines take; None where GKE's own choice is left alone."""
    workload_policy: bool = False
    """Whether hosts of a slice are held together by a named workload policy, where those of other
    generations take compact placement (xpk, "About Ironwood (TPU7x) in GKE"; high confidence)."""


@dataclass(frozen=True)
class Machine:
    name: str
    generation: str
    chips: int
    """Chips of one VM, all of which one pod must request."""
    host_topology: str
    """The shape of a slice that is one such VM."""
    vcpus: int
    memory_gib: int
    multi_host: bool
    """Whether several such VMs can form one slice."""


@dataclass(frozen=True)
class Refusal:
    """A machine type that exists, and why it is not offered."""

    reason: str
    use: str
    """What to declare instead."""


ACCELERATOR_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
CHIPS_LABEL = "cloud.google.com/gke-accelerator-count"
CHIP_RESOURCE = "google.com/tpu"

GKE_2D = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
GKE_SMALL_3D = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4")
GKE_CUBE_EDGE = 4
GKE_LONGEST_EDGE = 256

RAY_CHIPS_PER_HOST = 4
RAY_WHOLE_HOST_2D = ("1x1", "2x2", "2x4")
"""Ray takes these 2-D slices for one host, whatever the machine; every other host has 4 chips."""

_PARTS = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16")
RAY_PARTS = MappingProxyType({"4x4": _PARTS[:2], "8x8": _PARTS[:4], "16x16": _PARTS})
"""Slices of 4-chip hosts that Ray cuts into parts: rectangles of whole hosts, which tile the slice.

None but squares: elsewhere Ray 2.60 takes libtpu's axes for one another, and looks for hosts beyond
the slice (in a 4x8, x goes to 3 and y to 7). Of 3-D slices it halves the wrong axis.
"""

_RAY_V4 = tuple(
    """
2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x4x16 4x8x8 4x8x12 4x8x16 8x8x8 4x12x12 4x12x16 8x8x12
8x8x16 8x12x12 8x12x16 12x12x12 12x12x16
""".split()  # noqa: SIM905 - a table is read better without quotes
)
_RAY_V5P = tuple(
    """
2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x4x16 4x8x8 4x4x20 4x4x24 4x8x12 4x8x16 8x8x8 4x12x12
4x8x20 4x12x16 4x8x24 8x8x12 4x12x20 4x16x16 8x8x16 4x12x24 8x12x12 4x16x20 8x8x20 4x16x24 8x12x16
8x8x24 12x12x12 8x12x20 8x16x16 12x12x16 8x12x24 8x16x20 12x12x20 12x16x16 8x16x24 12x12x24 12x16x20
16x16x16 12x16x24 16x16x20 16x16x24
""".split()  # noqa: SIM905 - as above
)
_RAY_V7X = (*GKE_SMALL_3D, "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")

_GENERATIONS = (
    Generation(
        "v4",
        "tpu-v4-podslice",
        "v4",
        cores_per_chip=2,
        devices_per_chip=1,
        hbm_gib_per_chip=32,
        max_chips=4096,
        gke_topologies=GKE_SMALL_3D,
        gke_custom=True,
        ray_topologies=_RAY_V4,
        zones=("us-central2-b",),
        all_zones=True,
        flex_start=False,
        flex_start_zones=(),
        boot_disk=None,
    ),
    Generation(
        "v5e",
        "tpu-v5-lite-podslice",
        "v5litepod",
        cores_per_chip=1,
        devices_per_chip=1,
        hbm_gib_per_chip=16,
        max_chips=256,
        gke_topologies=GKE_2D,
        gke_custom=False,
        ray_topologies=GKE_2D,
        zones=("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "europe-west4-b"),
        all_zones=False,
        flex_start=True,
        flex_start_zones=("us-west4-a",),
        boot_disk="pd-balanced",
    ),
    Generation(
        "v5p",
        "tpu-v5p-slice",
        "v5p",
        cores_per_chip=2,
        devices_per_chip=1,
        hbm_gib_per_chip=95,
        max_chips=8960,
        gke_topologies=GKE_SMALL_3D,
        gke_custom=True,
        ray_topologies=_RAY_V5P,
        zones=("us-central1-a", "us-east5-a", "europe-west4-b"),
        all_zones=False,
        flex_start=True,
        flex_start_zones=("us-east5-a",),
        boot_disk=None,
    ),
    Generation(
        "v6e",
        "tpu-v6e-slice",
        "v6e",
        cores_per_chip=1,
        devices_per_chip=1,
        hbm_gib_per_chip=32,
        max_chips=256,
        gke_topologies=GKE_2D,
        gke_custom=False,
        ray_topologies=GKE_2D,
        zones=(
            "us-central1-b",
            "us-east1-d",
            "us-east5-a",
            "us-east5-b",
            "us-south1-ai1b",
            "europe-west4-a",
            "asia-northeast1-b",
        ),
        all_zones=False,
        flex_start=True,
        flex_start_zones=("asia-northeast1-b", "us-east5-a", "us-east5-b"),
        boot_disk="hyperdisk-balanced",
    ),
    Generation(
        "tpu7x",
        "tpu7x",
        "v7x",
        cores_per_chip=2,
        devices_per_chip=2,
        hbm_gib_per_chip=192,
        max_chips=9216,
        gke_topologies=GKE_SMALL_3D,
        gke_custom=True,
        ray_topologies=_RAY_V7X,
        zones=("us-central1-c", "us-central1-ai1a"),
        all_zones=False,
        flex_start=True,
        flex_start_zones=("us-central1-c",),
        boot_disk="hyperdisk-balanced",
        workload_policy=True,
    ),
)

_MACHINES = (
    Machine("ct4p-hightpu-4t", "v4", 4, "2x2x1", 240, 407, multi_host=True),
    Machine("ct5lp-hightpu-1t", "v5e", 1, "1x1", 24, 48, multi_host=False),
    Machine("ct5lp-hightpu-4t", "v5e", 4, "2x2", 112, 192, multi_host=True),
    Machine("ct5lp-hightpu-8t", "v5e", 8, "2x4", 224, 384, multi_host=False),
    Machine("ct5p-hightpu-4t", "v5p", 4, "2x2x1", 208, 448, multi_host=True),
    Machine("ct6e-standard-1t", "v6e", 1, "1x1", 44, 176, multi_host=False),
    Machine("ct6e-standard-4t", "v6e", 4, "2x2", 180, 720, multi_host=True),
    Machine("ct6e-standard-8t", "v6e", 8, "2x4", 180, 1440, multi_host=False),
    Machine("tpu7x-standard-4t", "tpu7x", 4, "2x2x1", 224, 960, multi_host=True),
    # GKE makes this one only for those who name it; Ray sees no difference.
    Machine("tpu7x-ultranet-4t", "tpu7x", 4, "2x2x1", 224, 960, multi_host=True),
)

_LITE = "Ray has no such generation: node and autoscaler would advertise different slices"
_PART_OF_HOST = "Ray takes every {} host to have 4 chips, so none of its slice functions work on it"
_NO_RAY = "Ray has no such generation: its slice functions and autoscaler do not know it"

GENERATIONS = MappingProxyType({generation.name: generation for generation in _GENERATIONS})
MACHINES = MappingProxyType({machine.name: machine for machine in _MACHINES})
REFUSED = MappingProxyType(
    {
        "ct4l-hightpu-4t": Refusal(_NO_RAY, "ct4p-hightpu-4t"),
        "ct5l-hightpu-1t": Refusal(_LITE, "ct5lp-hightpu-1t"),
        "ct5l-hightpu-4t": Refusal(_LITE, "ct5lp-hightpu-4t"),
        "ct5l-hightpu-8t": Refusal(_LITE, "ct5lp-hightpu-8t"),
        "ct5p-hightpu-1t": Refusal(_PART_OF_HOST.format("v5p"), "ct5p-hightpu-4t"),
        "ct5p-hightpu-2t": Refusal(_PART_OF_HOST.format("v5p"), "ct5p-hightpu-4t"),
        "tpu7-standard-1t": Refusal(_NO_RAY, "tpu7x-standard-4t"),
        "tpu7-standard-4t": Refusal(_NO_RAY, "tpu7x-standard-4t"),
        "tpu7x-standard-1t": Refusal(
            _PART_OF_HOST.format("tpu7x"), "tpu7x-standard-4t with topology 2x2x1"
        ),
    }
)
