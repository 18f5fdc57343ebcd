"""One slice is one size all the way: in GKE, in KubeRay, in Ray Train and in Ray Serve.

The numbers are written by hand, from the stack files and Google's tables of machines.
"""

import json
import math
import shlex

import pytest
import yaml

from tests.gke.journey import LIMIT_S, STACKS
from workloads.contract import SliceContract

pytestmark = pytest.mark.timeout(LIMIT_S)

# stack, slice, hosts of one copy, copies, chips of a host
SIZES = [
    ("dev", "chat", 1, 1, 8),
    ("staging", "train", 4, 1, 4),
    ("staging", "chat", 4, 1, 4),
    ("prod", "train", 8, 2, 4),
    ("prod", "chat", 1, 2, 8),
    ("autopilot", "chat", 1, 1, 8),
    ("existing", "train", 4, 1, 4),
    ("existing", "chat", 1, 1, 4),
    ("v5e", "chat", 1, 1, 8),
    ("v5p", "train", 4, 1, 4),
    ("tpu7x", "train", 2, 1, 4),
]
# stack, workload, Ray workers of the one program
TRAINERS = [
    ("staging", "pretrain", 4),
    ("prod", "pretrain", 16),
    ("existing", "pretrain", 4),
    ("v5p", "pretrain", 4),
    ("tpu7x", "pretrain", 2),
]
# stack, workload, replicas, chips of one
SERVERS = [
    ("dev", "chat", 1, 8),
    ("staging", "chat", 1, 16),
    ("prod", "chat", 2, 8),
    ("autopilot", "chat", 1, 8),
    ("existing", "chat", 1, 4),
    ("v5e", "chat", 1, 8),
]

sizes = pytest.mark.parametrize(
    ("journey", "name", "hosts", "copies", "chips"), SIZES, indirect=["journey"]
)


def groups(journey, name):
    """Worker groups of a slice, of all Ray clusters of the stack."""
    jobs = [job["spec"]["rayClusterSpec"] for job in journey.objects("RayJob").values()]
    services = [s["spec"]["rayClusterConfig"] for s in journey.objects("RayService").values()]
    return [g for spec in [*jobs, *services] for g in _workers(spec) if g["groupName"] == name]


def _workers(spec):
    return spec.get("workerGroupSpecs", [])


def most_nodes(pool):
    size = pool.get("nodeCount", pool.get("initialNodeCount", 0))
    return pool["autoscaling"]["maxNodeCount"] if "autoscaling" in pool else size


def test_every_stack_with_slices_of_one_shape_is_in_the_table():
    assert {stack for stack, *_ in SIZES} == {*STACKS} - {"two-shapes"}


@pytest.mark.parametrize("journey", ["two-shapes"], indirect=True)
def test_two_shapes_of_a_slice_are_two_groups_on_one_class(journey):
    [cluster] = journey.objects("RayCluster").values()
    made = [(g["groupName"], g["numOfHosts"], g["replicas"]) for g in _workers(cluster["spec"])]
    assert made == [("train", 8, 1), ("train-v5e-4x4", 4, 0)]
    [class_] = journey.objects("ComputeClass").values()
    rungs = [rung["tpu"] for rung in class_["spec"]["priorities"]]
    assert rungs == [
        {"type": "tpu-v6e-slice", "count": 4, "topology": "4x8"},
        {"type": "tpu-v5-lite-podslice", "count": 4, "topology": "4x4"},
    ]
    assert [
        group["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
        for group in _workers(cluster["spec"])
    ] == ["4x8", "4x4"]


@sizes
def test_the_operator_makes_a_pod_a_host(journey, name, hosts, copies, chips):
    [group] = groups(journey, name)
    assert (group["numOfHosts"], group["replicas"]) == (hosts, copies)
    assert (group["minReplicas"], group["maxReplicas"]) == (copies, copies)
    pod = group["template"]["spec"]["containers"][0]["resources"]
    assert pod["requests"]["google.com/tpu"] == pod["limits"]["google.com/tpu"] == str(chips)


@sizes
def test_there_are_as_many_nodes_as_pods(journey, name, hosts, copies, chips):
    """In pools that this stack makes. Those of a compute class are GKE's own."""
    pools = [
        pool
        for pool in journey.pools()
        if pool["nodeConfig"].get("labels", {}).get("raytpu/slice") == name
    ]
    [group] = groups(journey, name)
    selected = group["template"]["spec"]["nodeSelector"]
    if "cloud.google.com/compute-class" in selected:
        assert not pools
        class_ = journey.objects("ComputeClass")[selected["cloud.google.com/compute-class"]]
        for rung in class_["spec"]["priorities"]:
            assert rung["tpu"]["count"] == chips
            size = math.prod(map(int, rung["tpu"]["topology"].split("x")))
            assert size == hosts * chips
    elif journey.stack.name != "existing":
        assert len(pools) == (copies if hosts > 1 else 1)
        assert sum(map(most_nodes, pools)) == hosts * copies


@pytest.mark.parametrize(("journey", "name", "workers"), TRAINERS, indirect=["journey"])
def test_a_trainer_has_a_worker_a_host(journey, name, workers):
    words = shlex.split(journey.objects("RayJob")[name]["spec"]["entrypoint"])
    contract = SliceContract.from_json(words[words.index("--slice") + 1])
    assert contract.workers == workers


@pytest.mark.parametrize(("journey", "name", "replicas", "chips"), SERVERS, indirect=["journey"])
def test_a_served_model_has_a_replica_a_slice(journey, name, replicas, chips):
    service = journey.objects("RayService")[name]
    [application] = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    contract = SliceContract.from_json(json.dumps(application["args"]["slice"]))
    assert (application["args"]["replicas"], contract.devices_per_slice) == (replicas, chips)
    assert contract.slices == replicas


@pytest.mark.parametrize(
    ("journey", "quota"),
    [
        ("dev", 8),
        ("staging", 32),
        ("prod", 80),
        ("autopilot", 8),
        ("existing", 20),
        ("v5e", 8),
        ("v5p", 16),
        ("tpu7x", 8),
        ("two-shapes", 48),
    ],
    indirect=["journey"],
)
def test_the_team_may_have_what_its_stack_declares(journey, quota):
    [made] = journey.objects("ResourceQuota").values()
    assert made["spec"]["hard"]["requests.google.com/tpu"] == str(quota)
