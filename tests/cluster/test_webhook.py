"""The stand-in for GKE's TPU webhook: tables written by hand from the real one's source."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from tools.cluster import tpu_admission
from tools.cluster.tpu_admission import Denied, Refused, Slot
from tools.cluster.webhook import Webhook


def worker(accelerator="tpu-v6e-slice", topology="4x4", chips="4", env=(), containers=1, **labels):
    """A pod as KubeRay 1.5 and earlier make it: with nobody's number."""
    container = {
        "name": "ray-worker",
        "image": "ray",
        "env": [{"name": name, "value": value} for name, value in env],
        "resources": {"limits": {"google.com/tpu": chips}, "requests": {"google.com/tpu": chips}},
    }
    return {
        "metadata": {
            "generateName": "pretrain-train-worker-",
            "labels": {
                "app.kubernetes.io/name": "kuberay",
                "ray.io/cluster": "pretrain",
                "ray.io/group": "train",
                **{key.replace("__", "/").replace("_", "-"): v for key, v in labels.items()},
            },
        },
        "spec": {
            "nodeSelector": {
                "cloud.google.com/gke-tpu-accelerator": accelerator,
                "cloud.google.com/gke-tpu-topology": topology,
            },
            "containers": [
                {**copy.deepcopy(container), "name": f"c{index}"} for index in range(containers)
            ],
        },
    }


def numbered_worker(replica, host, **options):
    """A pod as KubeRay 1.6 makes it."""
    labels = {
        "ray.io__worker_group_replica_name": "train-abcde",
        "ray.io__worker_group_replica_index": str(replica),
        "ray.io__replica_host_index": str(host),
    }
    return worker(**labels, **options)


def patched(pod, slot=None):
    """The pod with its patch; `env` by container, as a kubelet resolves it: the last one counts."""
    pod = copy.deepcopy(pod)
    for step in tpu_admission.mutate(pod, slot or tpu_admission.numbered(pod)):
        assert step["op"] == "add"
        *path, last = step["path"].strip("/").split("/")
        target = pod
        for part in path:
            target = target[int(part)] if isinstance(target, list) else target[part]
        target[last] = step["value"]
    return pod, [
        {variable["name"]: variable.get("value") for variable in container.get("env", [])}
        for container in pod["spec"]["containers"]
    ]


HOSTS_OF_4X4 = (
    "train-0-0.pretrain-headless,train-0-1.pretrain-headless,"
    "train-0-2.pretrain-headless,train-0-3.pretrain-headless"
)


def test_a_host_of_a_slice_is_told_its_number_and_the_names_of_all_hosts():
    pod, (env,) = patched(numbered_worker(0, 2))
    assert env == {
        "TPU_WORKER_HOSTNAMES": HOSTS_OF_4X4,
        "TPU_WORKER_ID": "2",
        "TPU_NAME": "train-0",
        "TPU_DEVICE_PLUGIN_HOST_IP": None,
        "TPU_DEVICE_PLUGIN_ADDR": "$(TPU_DEVICE_PLUGIN_HOST_IP):2112",
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-0-2", "pretrain-headless")
    assert "replicaIndex" not in pod["metadata"]["labels"]


def test_a_slice_of_one_host_needs_no_names():
    pod, (env,) = patched(worker(topology="2x2"), Slot(3, 0))
    assert env["TPU_WORKER_ID"] == "0"
    assert env["TPU_NAME"] == "train-3"
    assert "TPU_WORKER_HOSTNAMES" not in env
    assert pod["metadata"]["labels"]["replicaIndex"] == "train-3"
    assert not {"hostname", "subdomain", "affinity"} & set(pod["spec"])


def test_the_containers_of_a_tpu7x_host_are_processes_of_their_own():
    pod = worker("tpu7x", "2x2x2", chips="2", containers=2)
    _, envs = patched(pod, Slot(0, 1))
    addresses = ",".join(
        f"train-0-{host}.pretrain-headless:{port}" for host in (0, 1) for port in (8471, 8472)
    )
    assert [env["TPU_WORKER_ID"] for env in envs] == ["2", "3"]
    assert [env["TPU_PROCESS_PORT"] for env in envs] == ["8471", "8472"]
    assert {env["TPU_PROCESS_ADDRESSES"] for env in envs} == {addresses}


def test_a_program_over_slices_is_told_where_the_first_is():
    _, (env,) = patched(numbered_worker(1, 0, env=[("MEGASCALE_NUM_SLICES", "2")]))
    assert env["MEGASCALE_SLICE_ID"] == "1"
    assert env["MEGASCALE_COORDINATOR_ADDRESS"] == "train-0-0.pretrain-headless"
    assert env["MEGASCALE_PORT"] == "8081"


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("TPU_NAME", "mine", True),
        ("TPU_WORKER_HOSTNAMES", "a,b", True),
        ("TPU_WORKER_HOSTNAMES", "localhost", False),
        ("TPU_WORKER_ID", "7", True),
        ("TPU_WORKER_ID", "0", False),  # the default of an image, and wrong on host 2
        ("TPU_DEVICE_PLUGIN_ADDR", "here:1", True),
    ],
)
def test_what_the_user_set_stays_unless_it_is_the_default_of_one_host(name, given, kept):
    _, (env,) = patched(numbered_worker(0, 2, env=[(name, given)]))
    assert (env[name] == given) is kept


def test_the_pods_of_a_replica_share_a_node_pool_and_no_others_are_in_it():
    pod, _ = patched(numbered_worker(0, 0))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    (together,) = pod["spec"]["affinity"]["podAffinity"][required]
    apart = pod["spec"]["affinity"]["podAntiAffinity"][required]
    assert {term["topologyKey"] for term in (together, *apart)} == {"cloud.google.com/gke-nodepool"}
    assert together["labelSelector"]["matchExpressions"] == [
        {"key": "ray.io/worker-group-replica-name", "operator": "In", "values": ["train-abcde"]},
        {"key": "ray.io/cluster", "operator": "In", "values": ["pretrain"]},
    ]
    assert [term["labelSelector"]["matchExpressions"][0]["operator"] for term in apart] == [
        "NotIn",
        "NotIn",
    ]


@pytest.mark.parametrize(
    ("cluster", "service"),
    [
        ("pretrain", "pretrain-headless"),
        # 42 characters and the suffix are 51: the webhook cuts, KubeRay 1.4 and later do not.
        ("a" * 42, "a" * 41 + "-headless"),
        ("x" + "7" * 41, "r" + "7" * 40 + "-headless"),
        ("experiment-0353b325-c892-a-long-name-of-a-run", "riment-0353b325-c892-a-long-name-of-a-run-headless"),
    ],
)  # fmt: skip
def test_a_long_cluster_name_is_cut_from_its_beginning(cluster, service):
    assert tpu_admission.headless_service(cluster) == service


def test_a_pod_without_chips_is_left_alone():
    pod = worker()
    del pod["spec"]["containers"][0]["resources"]
    assert not tpu_admission.asks_for_chips(pod)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: p["metadata"]["labels"].pop("ray.io/cluster"), "missing RayCluster label"),
        (lambda p: p["metadata"]["labels"].pop("ray.io/group"), "missing Group label"),
        (lambda p: p["spec"].pop("nodeSelector"), "missing TPU topology nodeSelector"),
    ],
)
def test_a_pod_that_asks_for_chips_and_is_not_kuberays_is_refused(change, reason):
    pod = worker()
    change(pod)
    with pytest.raises(Refused, match=reason):
        tpu_admission.free_slot(pod, [])


def ray_cluster(hosts, topology="4x4", chips="4"):
    spec = worker(topology=topology, chips=chips)["spec"]
    return {"spec": {"workerGroupSpecs": [{"numOfHosts": hosts, "template": {"spec": spec}}]}}


@pytest.mark.parametrize(
    ("topology", "chips", "hosts"),
    [("4x4", "4", 4), ("2x4", "8", 1), ("2x4", "4", 2), ("2x2x2", "4", 2), ("1x1", "4", 1)],
)
def test_a_group_has_as_many_hosts_as_its_topology(topology, chips, hosts):
    tpu_admission.validate(ray_cluster(hosts, topology, chips))
    with pytest.raises(Denied) as denied:
        tpu_admission.validate(ray_cluster(hosts + 1, topology, chips))
    said = "Number of workers in worker group not equal to specified topology"
    assert str(denied.value) == said


def existing(*slots, leaving=()):
    pods = []
    for slot in slots:
        pod, _ = patched(worker(), Slot(*slot))
        if slot in leaving:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pods.append(pod)
    return pods


@pytest.mark.parametrize(
    ("others", "slot"),
    [
        (existing(), (0, 0)),
        (existing((0, 0), (0, 1)), (0, 2)),
        (existing((0, 0), (0, 2), (0, 3)), (0, 1)),  # the pod of host 1 is replaced
        (existing((0, 0), (0, 1), (0, 2), (0, 3)), (1, 0)),
        (existing((1, 0), (1, 1), (1, 2), (1, 3)), (0, 0)),  # replica 0 comes back
        (existing((0, 0), (0, 1), leaving=[(0, 1)]), (0, 1)),
    ],
)
def test_a_pod_takes_the_lowest_place_that_is_free(others, slot):
    assert tpu_admission.free_slot(worker(), others) == slot


def test_a_pod_let_in_without_a_number_stops_its_slice():
    (pod,) = existing((0, 0))
    pod["spec"]["containers"][0]["env"] = []
    with pytest.raises(Refused, match="missing TPU_WORKER_ID"):
        tpu_admission.free_slot(worker(), [pod])
