"""The stack `existing` as it is shipped, by the real provider and operator, on pods that run."""

import threading
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import pytest
from kubernetes.config import new_client_from_config

from tests.cluster.real_stack import RealStack
from tests.cluster.seen import items, names, ray, request
from tests.tools.project import Done

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

TEAM = "research"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
POOL = "cloud.google.com/gke-nodepool"
UP_LIMIT_S = 1200
LOOK_S = 0.5
QUESTION = {"model": "chat", "prompt": "The value of a class", "max_tokens": 4, "temperature": 0}


@dataclass
class Watcher:
    """Where each pod with chips was, seen while something else goes on."""

    api: Any
    nodes: dict[str, str] = field(default_factory=dict)
    """By the name of the pod."""

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            for pod in items(self.api, PODS):
                chips = pod["spec"]["containers"][0]["resources"].get("limits", {})
                if "google.com/tpu" in chips and "nodeName" in pod["spec"]:
                    self.nodes[pod["metadata"]["name"]] = pod["spec"]["nodeName"]


@dataclass(frozen=True)
class Journey:
    stack: RealStack
    up: Done
    jobs: dict[str, dict[str, Any]]
    nodes: dict[str, str]
    pools: dict[str, str]
    """Of each node."""
    answer: dict[str, Any]
    again: Done
    cluster: str
    """The Ray cluster that serves."""
    edited: Done
    cluster_after_edit: str
    clusters_after_edit: list[str]
    answer_after_edit: dict[str, Any]
    replaced: Done
    cluster_after_image: str
    images: set[str]
    destroyed: Done
    left: list[str]


@pytest.fixture(scope="module")
def journey(cluster, provider, tmp_path_factory) -> Journey:  # noqa: ARG001 - built before
    kubeconfig = cluster.ready()["kubeconfig"]
    api = new_client_from_config(kubeconfig)
    stack = RealStack(tmp_path_factory.mktemp("journey"), kubeconfig, limit_s=UP_LIMIT_S)
    with Watcher(api) as watcher:
        up = stack.up()
    assert up.code == 0, up.output
    first = {
        "jobs": by_name(api, ray(TEAM, "rayjobs")),
        "nodes": watcher.nodes,
        "pools": {
            name: node["metadata"]["labels"][POOL]
            for name, node in by_name(api, "/api/v1/nodes").items()
        },
        "answer": ask(api),
        "again": stack.preview("--diff", "--expect-no-changes"),
        "cluster": serving(api),
    }
    data, pretrain, chat = stack.declared["workloads"]
    stack.declare(workloads=[data, pretrain, {**chat, "max_batch": 4}])
    edited = stack.up()
    edit = {
        "edited": edited,
        "cluster_after_edit": serving(api),
        "clusters_after_edit": names(api, ray(TEAM, "rayclusters")),
        "answer_after_edit": ask(api),
    }
    image = stack.declared["images"]["ray"]
    stack.declare(images={"ray": f"{image}-new"})
    replaced = stack.up()
    new = {
        "replaced": replaced,
        "cluster_after_image": serving(api),
        "images": {pod["spec"]["containers"][0]["image"] for pod in items(api, PODS)},
    }
    destroyed = stack.destroy()
    return Journey(stack, up, **first, **edit, **new, destroyed=destroyed, left=left(api))


def by_name(api: Any, path: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in items(api, path)}


def serving(api: Any) -> str:
    service = request(api, "GET", f"{ray(TEAM, 'rayservices')}/chat")
    return service["status"]["activeServiceStatus"]["rayClusterName"]


def ask(api: Any) -> dict[str, Any]:
    """What the model says at the service's cluster address."""
    service = request(api, "GET", f"/api/v1/namespaces/{TEAM}/services/chat-serve-svc")
    url = f"http://{service['spec']['clusterIP']}:8000/v1/completions"
    answer = httpx.post(url, json=QUESTION, timeout=120)
    answer.raise_for_status()
    return answer.json()


def left(api: Any) -> list[str]:
    found = []
    for path in ("/api/v1/namespaces", "/apis/cloud.google.com/v1/computeclasses"):
        found += [one for one in names(api, path) if one == TEAM or "raytpu" in one]
    return found


def test_jobs_run_to_their_end_and_the_model_answers(journey):
    assert {name: one["status"]["jobStatus"] for name, one in journey.jobs.items()} == {
        "corpus": "SUCCEEDED",
        "pretrain": "SUCCEEDED",
    }
    assert journey.answer["choices"][0]["text"]


@pytest.mark.parametrize(("workload", "hosts"), [("pretrain", 4), ("chat", 1)])
def test_the_pods_of_a_slice_have_a_whole_slice(journey, workload, hosts):
    nodes = [node for pod, node in journey.nodes.items() if pod.startswith(f"{workload}-")]
    assert len({*nodes}) == hosts
    [pool] = {journey.pools[node] for node in nodes}
    assert sum(one == pool for one in journey.pools.values()) == hosts


def test_a_stack_that_is_up_has_nothing_to_change(journey):
    assert journey.again.code == 0, journey.again.output


def test_a_serve_config_edit_needs_no_second_cluster(journey):
    assert journey.edited.code == 0, journey.edited.output
    assert journey.cluster_after_edit == journey.cluster
    assert [one for one in journey.clusters_after_edit if one.startswith("chat-")] == [
        journey.cluster
    ]
    assert journey.answer_after_edit["choices"][0]["text"]


def test_another_image_replaces_the_cluster_in_place(journey):
    """As upgrade: in_place says: the old one goes first, for there are chips for one alone."""
    assert journey.replaced.code == 0, journey.replaced.output
    assert journey.cluster_after_image != journey.cluster
    assert {one.rpartition("-")[2] for one in journey.images} == {"new"}


def test_in_the_end_nothing_is_left(journey):
    assert journey.destroyed.code == 0, journey.destroyed.output
    assert journey.left == []
