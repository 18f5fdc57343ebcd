"""The stand-in for GKE's webhooks: tables written by hand from the real ones, and a real server."""

import copy
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from tools.cluster import class_admission, tpu_admission
from tools.cluster.tpu_admission import Denied, Refused, Slot
from tools.cluster.webhook import Webhook

MISMATCH = "Number of workers in worker group not equal to specified topology"


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
    slot = slot or tpu_admission.numbered(pod)
    assert slot is not None
    for step in tpu_admission.mutate(pod, slot):
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
        (
            "experiment-0353b325-c892-a-long-name-of-a-run",
            "riment-0353b325-c892-a-long-name-of-a-run-headless",
        ),
    ],
)
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
    assert str(denied.value) == MISMATCH


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


def test_a_pod_of_a_class_tolerates_its_taint():
    pod = worker()
    pod["spec"]["nodeSelector"]["cloud.google.com/compute-class"] = "ladder"
    pod["spec"]["tolerations"] = [{"key": "google.com/tpu", "operator": "Exists"}]
    (step,) = class_admission.mutate(pod)
    assert step["path"] == "/spec/tolerations"
    assert step["value"] == [
        {"key": "google.com/tpu", "operator": "Exists"},
        {
            "key": "cloud.google.com/compute-class",
            "operator": "Equal",
            "value": "ladder",
            "effect": "NoSchedule",
        },
    ]
    assert class_admission.mutate(worker()) == []


@pytest.fixture(scope="module")
def webhook(control_plane, tmp_path_factory):
    with Webhook(control_plane.api, tmp_path_factory.mktemp("webhook")) as webhook:
        yield webhook


@pytest.fixture
def pods(control_plane, webhook):  # noqa: ARG001 # which is asked about them
    return client.CoreV1Api(control_plane.api)


@pytest.fixture
def namespace(pods):
    name = f"webhook-{uuid.uuid4().hex[:6]}"
    pods.create_namespace({"metadata": {"name": name}})
    yield name
    pods.delete_namespace(name)


def create(pods, namespace, pod):
    pod["spec"]["automountServiceAccountToken"] = False
    created = pods.create_namespaced_pod(namespace, pod)
    env = {variable.name: variable.value for variable in created.spec.containers[0].env or ()}
    return created, env


def told(refusal):
    """What kubectl would print."""
    assert refusal.value.body
    return json.loads(refusal.value.body)["message"]


def place(created):
    pod, env = created
    return pod.metadata.labels["replicaIndex"], int(env["TPU_WORKER_ID"])


def test_pods_that_come_at_once_have_each_a_number_of_their_own(pods, namespace):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create(pods, namespace, worker()), range(8)))
    expected = [(f"train-{replica}", host) for replica in range(2) for host in range(4)]
    assert sorted(map(place, made)) == expected


def test_a_pod_that_replaces_another_takes_its_number(pods, namespace):
    made = {place(one): one[0] for one in (create(pods, namespace, worker()) for _ in range(4))}
    lost = made["train-0", 1].metadata.name
    pods.delete_namespaced_pod(lost, namespace, grace_period_seconds=0)
    assert place(create(pods, namespace, worker())) == ("train-0", 1)


def test_a_dry_run_takes_no_number(pods, namespace):
    pods.create_namespaced_pod(namespace, worker(), dry_run="All")
    assert place(create(pods, namespace, worker())) == ("train-0", 0)


def test_the_user_reads_that_the_webhook_failed_as_with_the_real_one(pods, namespace):
    pod = worker()
    del pod["spec"]["nodeSelector"]
    with pytest.raises(ApiException) as refused:
        create(pods, namespace, pod)
    message = told(refused)
    assert 'failed calling webhook "kuberay-tpu-webhook.ray-system.svc"' in message
    assert "Failed to mutate Pod" in message


def test_labels_that_a_class_decides_are_denied_beside_it(pods, namespace):
    pod = worker()
    pod["spec"]["nodeSelector"] |= {
        "cloud.google.com/compute-class": "ladder",
        "cloud.google.com/gke-spot": "true",
    }
    with pytest.raises(ApiException) as denied:
        create(pods, namespace, pod)
    assert "nodeSelector cloud.google.com/gke-spot cannot be used" in told(denied)


def know_ray_clusters(api):
    """As far as an API server needs to for a webhook to be asked."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "rayclusters", "kind": "RayCluster"}
    manifest: Any = {
        "metadata": {"name": "rayclusters.ray.io"},
        "spec": {"group": "ray.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    try:
        client.ApiextensionsV1Api(api).create_custom_resource_definition(manifest)
    except ApiException as error:
        assert error.status == 409  # noqa: PT017 # it is known already
    deadline = time.monotonic() + 30
    while not _is_served(api):
        assert time.monotonic() < deadline, "rayclusters are not served after 30 s"
        time.sleep(0.1)


def _is_served(api):
    try:
        client.CustomObjectsApi(api).list_cluster_custom_object("ray.io", "v1", "rayclusters")
    except ApiException:
        return False
    return True


def test_a_wrong_number_of_hosts_is_denied_in_the_webhooks_words(
    control_plane,
    webhook,  # noqa: ARG001 # which is asked about it
    namespace,
):
    clusters = client.CustomObjectsApi(control_plane.api)
    know_ray_clusters(control_plane.api)
    template = {"spec": worker()["spec"]}
    for container in template["spec"]["containers"]:
        del container["env"]
    group = {"groupName": "train", "replicas": 1, "numOfHosts": 2, "rayStartParams": {}}
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "ray-head"}]}}}
    manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "pretrain"},
        "spec": {"headGroupSpec": head, "workerGroupSpecs": [{**group, "template": template}]},
    }
    arguments = ("ray.io", "v1", namespace, "rayclusters", manifest)
    with pytest.raises(ApiException) as denied:
        clusters.create_namespaced_custom_object(*arguments)
    assert told(denied) == (
        'admission webhook "raycluster-kuberay-tpu-webhook.ray-system.svc" denied the request: '
        + MISMATCH
    )
    manifest["spec"]["workerGroupSpecs"][0]["numOfHosts"] = 4
    clusters.create_namespaced_custom_object(*arguments)


def test_no_configuration_outlives_the_webhook(control_plane, webhook):
    api = client.AdmissionregistrationV1Api(control_plane.api)

    def names():
        found = [
            *api.list_mutating_webhook_configuration().items,
            *api.list_validating_webhook_configuration().items,
        ]
        return [one.metadata.name for one in found]

    assert len(names()) == 3
    webhook.__exit__(None, None, None)
    assert names() == []
    webhook.__enter__()
