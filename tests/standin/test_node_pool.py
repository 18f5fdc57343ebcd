"""The stand-in refuses what GKE refuses, and takes what GKE takes."""

import copy

import pytest

from tests.standin.node_pool import faults
from tests.standin.wire import put

ONE_HOST = {
    "name": "chat-0",
    "project": "acme-ml",
    "nodeLocations": ["us-east5-b"],
    "autoscaling": {"minNodeCount": 0, "maxNodeCount": 1},
    "nodeConfig": {"machineType": "ct6e-standard-8t"},
}
MULTI_HOST = {
    **ONE_HOST,
    "autoscaling": {"minNodeCount": 0, "maxNodeCount": 4},
    "nodeConfig": {"machineType": "ct6e-standard-4t"},
    "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
}
IRONWOOD = {
    **MULTI_HOST,
    "autoscaling": {"minNodeCount": 0, "maxNodeCount": 2},
    "nodeConfig": {"machineType": "tpu7x-standard-4t"},
    "placementPolicy": {"type": "", "policyName": "policy", "tpuTopology": "2x2x2"},
}
FLEX = {
    **ONE_HOST,
    "management": {"autoRepair": False},
    "nodeConfig": {
        "machineType": "ct6e-standard-8t",
        "flexStart": True,
        "maxRunDuration": "86400s",
        "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
    },
}
RESERVED = {
    **MULTI_HOST,
    "nodeConfig": {
        "machineType": "ct6e-standard-4t",
        "reservationAffinity": {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": ["v6e-2026"],
        },
    },
}
QUEUED = {**MULTI_HOST, "queuedProvisioning": {"enabled": True}}
CPU = {"name": "cpu", "nodeConfig": {"machineType": "n2-standard-8"}}
AFFINITY = "nodeConfig.reservationAffinity"


def changed(pool, **changes):
    pool = copy.deepcopy(pool)
    for path, value in changes.items():
        put(pool, path.replace("__", "."), value)
    return pool


@pytest.mark.parametrize("pool", [ONE_HOST, MULTI_HOST, IRONWOOD, FLEX, RESERVED, QUEUED, CPU])
def test_a_sound_pool_is_taken(pool):
    assert [*faults(pool)] == []


@pytest.mark.parametrize(
    ("pool", "changes", "words"),
    [
        (ONE_HOST, {"name": "a" * 41}, "at most 40 characters"),
        (ONE_HOST, {"maxPodsPerNode": 4}, "between 8 and 256"),
        (
            ONE_HOST,
            {"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x4"}},
            "TPU topology can't be specified with single-host TPU slice pool",
        ),
        (
            ONE_HOST,
            {"placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"}},
            "Invalid TPU topology 4x4 for machine type ct6e-standard-8t",
        ),
        (CPU, {"placementPolicy": {"tpuTopology": "2x4"}}, "only be specified with a TPU machine"),
        (MULTI_HOST, {"placementPolicy__tpuTopology": "2x8"}, "Invalid TPU topology 2x8"),
        (MULTI_HOST, {"placementPolicy__type": ""}, "requires a COMPACT placement policy"),
        (
            MULTI_HOST,
            {"autoscaling": {"totalMinNodeCount": 0, "totalMaxNodeCount": 4}},
            "Maximum node count 0 is not a valid size of TPU pod slice with topology 4x4",
        ),
        (MULTI_HOST, {"autoscaling__maxNodeCount": 8}, "Maximum node count 8 is not a valid"),
        (MULTI_HOST, {"autoscaling__minNodeCount": 1}, "Minimum node count 1 is not a valid"),
        (MULTI_HOST, {"initialNodeCount": 3}, "Node count 3 is not a valid size"),
        (MULTI_HOST, {"nodeLocations": ["us-east5-a", "us-east5-b"]}, "exactly one node location"),
        (
            MULTI_HOST,
            {"upgradeSettings__strategy": "BLUE_GREEN"},
            "COMPACT placement is not compatible with BLUE_GREEN",
        ),
        (
            IRONWOOD,
            {"placementPolicy__type": "COMPACT"},
            "placement policy is not supported. Use workload policy instead.",
        ),
        (IRONWOOD, {"placementPolicy__policyName": ""}, "Use workload policy instead."),
        (ONE_HOST, {"nodeConfig__diskType": "pd-balanced"}, "cannot be used by ct6e-standard-8t"),
        (FLEX, {"nodeConfig__spot": True}, "Spot VMs cannot be used with flex start"),
        (QUEUED, {"nodeConfig__spot": True}, "Spot VMs cannot be used with queued provisioning"),
        (RESERVED, {"nodeConfig__spot": True}, "Spot VMs don't support reservations"),
        (RESERVED, {"queuedProvisioning": {"enabled": True}}, "Provisioning Requests don't"),
        (
            FLEX,
            {AFFINITY: RESERVED["nodeConfig"]["reservationAffinity"]},
            "Flex Start Non-Queued doesn't support reservations",
        ),
        (FLEX, {"queuedProvisioning": {"enabled": True}}, "don't support TPUs with queued"),
        (FLEX, {"management__autoRepair": True}, "Auto-repair must be disabled"),
        (FLEX, {"initialNodeCount": 1}, "must be autoscaled from 0 nodes"),
        (FLEX, {"nodeConfig__maxRunDuration": "604801s"}, "between 600s and 604800s"),
        (FLEX, {"nodeConfig__machineType": "ct4p-hightpu-4t"}, "not supported for ct4p"),
        (QUEUED, {"autoscaling__minNodeCount": 4}, "a minimum of 0 nodes"),
        (
            RESERVED,
            {f"{AFFINITY}.consumeReservationType": "ANY_RESERVATION"},
            "don't support reservation affinity ANY_RESERVATION",
        ),
        (RESERVED, {f"{AFFINITY}.key": ""}, "requires the key compute.googleapis.com"),
        (RESERVED, {f"{AFFINITY}.values": []}, "requires the key compute.googleapis.com"),
        (RESERVED, {f"{AFFINITY}.values": ["r/reservationSubBlocks/s"]}, "Invalid reservation"),
        (
            RESERVED,
            {f"{AFFINITY}.values": ["projects/other/reservations/r"]},
            "Shared reservations are not supported with a placement policy",
        ),
    ],
)
def test_what_gke_refuses_is_refused_in_its_words(pool, changes, words):
    found = [*faults(changed(pool, **changes))]
    assert any(words in fault for fault in found), found
