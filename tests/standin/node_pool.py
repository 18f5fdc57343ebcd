"""What GKE refuses of a node pool, mostly in its own words.

The rules and where each was seen are the tables of GKE's cluster autoscaler (7d25050), the
preconditions of cluster-toolkit (1047080), answers of the API quoted in xpk (PR 825, 900),
vllm-project/ci-infra (PR 545) and "About TPUs in GKE". Machines and topologies are typed here once
more, on purpose: nothing of the project's own catalogue is asked.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from tests.standin.wire import at

Args = dict[str, Any]

NAME = r"[a-z]([-a-z0-9]*[a-z0-9])?"
NAME_LIMIT = 40
RESERVATION_KEY = "compute.googleapis.com/reservation-name"
FLEX_RUN_S = range(600, 604_800 + 1)

CHIPS = {
    "ct4p-hightpu-4t": 4,
    "ct5lp-hightpu-1t": 1,
    "ct5lp-hightpu-4t": 4,
    "ct5lp-hightpu-8t": 8,
    "ct5p-hightpu-4t": 4,
    "ct6e-standard-1t": 1,
    "ct6e-standard-4t": 4,
    "ct6e-standard-8t": 8,
    "tpu7x-standard-4t": 4,
}
ONE_HOST_ONLY = {name for name in CHIPS if not name.endswith("-4t")}
DISKS = {"ct5lp": {"pd-balanced", "pd-ssd"}, "ct6e": {"hyperdisk-balanced"}}
DISKS["tpu7x"] = DISKS["ct6e"]
FLAT = {"1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"}
SMALL_SOLID = {"2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4"}
CUBE_EDGE = 4

IN_PLACE = {
    "autoscaling",
    "management",
    "nodeConfig.diskSizeGb",
    "nodeConfig.diskType",
    "nodeConfig.imageType",
    "nodeConfig.kubeletConfig",
    "nodeConfig.labels",
    "nodeConfig.loggingVariant",
    "nodeConfig.machineType",
    "nodeConfig.resourceLabels",
    "nodeConfig.tags",
    "nodeConfig.taints",
    "nodeConfig.workloadMetadataConfig",
    "nodeCount",
    "nodeDrainConfigs",
    "nodeLocations",
    "placementPolicy.tpuTopology",
    "placementPolicy.type",
    "upgradeSettings",
    "version",
}
"""What Google's provider (schema of 2026) sends as an update. All else makes another pool."""

DRIFT = {
    "nodeConfig.advancedMachineFeatures": {"threadsPerCore": 1},
    "nodeConfig.guestAccelerators": [],
    "nodeConfig.kubeletConfig": {"insecureKubeletReadonlyPortEnabled": "FALSE"},
    "nodeConfig.shieldedInstanceConfig": {"enableIntegrityMonitoring": True},
    "nodeDrainConfigs": [{"respectPdbDuringNodePoolDeletion": False}],
}
"""What GKE was seen to fill in where nothing was said, and Google's provider to report (ci-infra).

Some of it the provider's schema of 2026 takes for GKE's own; it is reported here all the same, but
for upgrade_settings, which a program cannot ignore: a pool that replaces another would take on the
other's, and flex-start knows no other strategy than its own."""


def is_tpu(args: Args) -> bool:
    return str(at(args, "nodeConfig.machineType")).startswith(("ct", "tpu"))


def hosts(args: Args) -> int:
    """Of one slice."""
    topology = at(args, "placementPolicy.tpuTopology")
    chips = CHIPS[args["nodeConfig"]["machineType"]]
    return math.prod(map(int, topology.split("x"))) // chips if topology else 1


def faults(args: Args) -> Iterator[str]:
    name = args.get("name", "")
    if len(name) > NAME_LIMIT or not re.fullmatch(NAME, name):
        yield f"nodePool.name {name!r} must match {NAME} and have at most {NAME_LIMIT} characters"
    pods = args.get("maxPodsPerNode", 110)
    if not 8 <= pods <= 256:
        yield f"max_pods_per_node {pods} must be between 8 and 256"
    if is_tpu(args):
        yield from _tpu_faults(args)
    elif at(args, "placementPolicy.tpuTopology"):
        yield "TPU topology can only be specified with a TPU machine type"


def _tpu_faults(args: Args) -> Iterator[str]:
    machine = args["nodeConfig"]["machineType"]
    if machine not in CHIPS:
        yield f"Machine type {machine} does not exist in the zones of the node pool"
        return
    disk = at(args, "nodeConfig.diskType")
    offered = DISKS.get(machine.partition("-")[0], {disk})
    if disk and disk not in offered:
        yield f"{disk} disk type cannot be used by {machine} machine type"
    yield from _capacity_faults(args)
    yield from _reservation_faults(args)
    topology = at(args, "placementPolicy.tpuTopology")
    if topology and not _formed(machine, topology):
        yield f"Invalid TPU topology {topology} for machine type {machine}"
    elif topology and hosts(args) == 1:
        yield "TPU topology can't be specified with single-host TPU slice pool"
    elif topology:
        yield from _multi_host_faults(args, machine, topology)


def _formed(machine: str, topology: str) -> bool:
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){1,2}", topology):
        return False
    sizes = [int(size) for size in topology.split("x")]
    chips, whole = CHIPS[machine], math.prod(sizes)
    if whole % chips or (machine in ONE_HOST_ONLY and whole != chips):
        return False
    if machine.startswith(("ct5lp", "ct6e")):
        return topology in FLAT
    in_cubes = len(sizes) == 3 and all(size % CUBE_EDGE == 0 for size in sizes)
    return topology in SMALL_SOLID or (in_cubes and sizes == sorted(sizes))


def _multi_host_faults(args: Args, machine: str, topology: str) -> Iterator[str]:
    whole = hosts(args)
    placement = args["placementPolicy"]
    kind, policy = placement.get("type", ""), placement.get("policyName")
    if machine.startswith("tpu7x") and (kind == "COMPACT" or not policy):
        yield (
            f"Creation of a managed instance group with {machine} machine type with placement "
            "policy is not supported. Use workload policy instead."
        )
    elif kind != "COMPACT" and not policy:
        yield f"Multi-host TPU slice with topology {topology} requires a COMPACT placement policy"
    if kind == "COMPACT" and at(args, "upgradeSettings.strategy") == "BLUE_GREEN":
        yield "COMPACT placement is not compatible with BLUE_GREEN upgrades"
    if len(args.get("nodeLocations", [])) != 1:
        yield "Multi-host TPU slice node pool must have exactly one node location"
    scaling = args.get("autoscaling", {"minNodeCount": 0, "maxNodeCount": whole})
    wrong = f"is not a valid size of TPU pod slice with topology {topology}"
    if (most := scaling.get("maxNodeCount", 0)) != whole:
        yield f"Maximum node count {most} {wrong}"
    if (least := scaling.get("minNodeCount", 0)) not in (0, whole):
        yield f"Minimum node count {least} {wrong}"
    if (count := args.get("initialNodeCount", args.get("nodeCount", 0))) not in (0, whole):
        yield f"Node count {count} {wrong}"


def _capacity_faults(args: Args) -> Iterator[str]:
    spot, flex = at(args, "nodeConfig.spot"), at(args, "nodeConfig.flexStart")
    queued = at(args, "queuedProvisioning.enabled")
    machine = args["nodeConfig"]["machineType"]
    static = "autoscaling" not in args or args.get("nodeCount") or args.get("initialNodeCount")
    run = at(args, "nodeConfig.maxRunDuration")
    checks = (
        (spot and flex, "Spot VMs cannot be used with flex start"),
        (spot and queued, "Spot VMs cannot be used with queued provisioning"),
        (
            flex and queued,
            "Flex start node pools don't support TPUs with queued provisioning.",
        ),
        (flex and static, "Flex start node pools must be autoscaled from 0 nodes"),
        (
            flex and at(args, "management.autoRepair") is not False,
            "Auto-repair must be disabled for flex start node pools",
        ),
        (flex and machine.startswith("ct4p"), f"Flex start is not supported for {machine}"),
        (flex and not _runs(run), f"max_run_duration {run} must be between 600s and 604800s"),
        (
            queued and at(args, "autoscaling.minNodeCount"),
            "Queued provisioning requires autoscaling with a minimum of 0 nodes",
        ),
        (
            (flex or queued) and at(args, "upgradeSettings.strategy") == "BLUE_GREEN",
            "SHORT_LIVED is the only supported upgrade strategy of such node pools",
        ),
    )
    yield from (reason for broken, reason in checks if broken)


def _runs(duration: object) -> bool:
    return bool(re.fullmatch(r"\d+s", str(duration))) and int(str(duration)[:-1]) in FLEX_RUN_S


def _shared(reservation: str, args: Args) -> bool:
    """Whether it belongs to another project."""
    owner = re.match(r"projects/([^/]+)/", reservation)
    return bool(owner) and owner[1] != args.get("project")


def _reservation_faults(args: Args) -> Iterator[str]:
    affinity = at(args, "nodeConfig.reservationAffinity") or {}
    kind, values = affinity.get("consumeReservationType"), affinity.get("values", [])
    if kind == "ANY_RESERVATION":
        yield "TPU node pools don't support reservation affinity ANY_RESERVATION"
    if kind != "SPECIFIC_RESERVATION":
        if values or affinity.get("key"):
            yield f"Reservation key and values must not be given with {kind}"
        return
    if affinity.get("key") != RESERVATION_KEY or not values:
        yield f"SPECIFIC_RESERVATION requires the key {RESERVATION_KEY} and a value"
    for value in values:
        if not re.fullmatch(
            r"(projects/[^/]+/reservations/)?[a-z][-a-z0-9]*"
            r"(/reservationBlocks/[^/]+(/reservationSubBlocks/[^/]+)?)?",
            value,
        ):
            yield f"Invalid reservation {value}"
        elif _shared(value, args) and args.get("placementPolicy"):
            yield "Shared reservations are not supported with a placement policy"
    for key, capacity in (
        ("nodeConfig.spot", "Spot VMs don't"),
        ("nodeConfig.flexStart", "Flex Start Non-Queued doesn't"),
        ("queuedProvisioning.enabled", "Provisioning Requests don't"),
    ):
        if at(args, key):
            yield f"{capacity} support reservations"
