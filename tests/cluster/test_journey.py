"""The stack `existing` as it is shipped, by the real provider and operator, on pods that run.

While it trains, a worker's pod is deleted.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import httpx
import psutil
import pytest
from kubernetes.config import new_client_from_config

from infra.config import TrainSpec
from tests.cluster.loss import Loss, lose_a_worker
from tests.cluster.real_stack import RealStack, finished
from tests.cluster.seen import ApiServerError, items, names, ray, request
from tests.tools.project import Done
from tools.cluster import operator
from tools.cluster.instance import Instance

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

TEAM = "research"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
HOSTS = 4
"""Of the v6e 4x4 on which the stack trains."""
POOL = "cloud.google.com/gke-nodepool"
UP_LIMIT_S = 1500
LOOK_S = 0.5
ANSWER_LIMIT_S = 20
RECONNECTS = 3
"""Within 1.5 s, about as long as the openai client tries by itself: KubeRay turns the service to
the new cluster before its pods count as ready (infra/ray/pods.py).
"""
QUESTION = {"model": "chat", "prompt": "The value of a class", "max_tokens": 4, "temperature": 0}


@dataclass
class Watcher:
    """Looks at something again and again while something else goes on."""

    look: Callable[[], None]

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
            self.look()


@dataclass(frozen=True)
class Upgrade:
    """To another image, while questions are asked without end."""

    done: Done
    cluster: str
    """The Ray cluster that serves after it."""
    images: set[str]
    answered: int
    failed: list[str]


@dataclass(frozen=True)
class Journey:
    stack: RealStack
    up: Done
    loss: Loss
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
    in_place: Upgrade
    by_new_cluster: Upgrade
    destroyed: Done
    left: list[str]
    processes: list[str]
    """That are there after all this and were not before it."""


@pytest.fixture(scope="module")
def journey(cluster, provider, tmp_path_factory) -> Journey:  # noqa: ARG001 - built before
    kubeconfig = cluster.ready()["kubeconfig"]
    api = new_client_from_config(kubeconfig)
    stack = RealStack(tmp_path_factory.mktemp("journey"), kubeconfig, limit_s=UP_LIMIT_S)
    before = processes(cluster)
    nodes: dict[str, str] = {}
    with Watcher(lambda: nodes.update(tpu_nodes(api))), stack.going_up() as going:
        loss = lose_a_worker(api, going, TEAM, trained(stack))
        up = finished(going, UP_LIMIT_S)
    assert up.code == 0, up.output
    first = {
        "jobs": by_name(api, ray(TEAM, "rayjobs")),
        "nodes": nodes,
        "pools": {
            name: node["metadata"]["labels"][POOL]
            for name, node in by_name(api, "/api/v1/nodes").items()
        },
        "answer": ask(api),
        "again": stack.preview("--diff", "--expect-no-changes"),
        "cluster": serving(api),
    }
    *jobs, chat = stack.declared["workloads"]
    stack.declare(workloads=[*jobs, {**chat, "max_batch": 4}])
    edited = stack.up()
    edit = {
        "edited": edited,
        "cluster_after_edit": serving(api),
        "clusters_after_edit": names(api, ray(TEAM, "rayclusters")),
        "answer_after_edit": ask(api),
    }
    in_place = upgrade(api, stack, "new")
    stack.declare(workloads=[*jobs, {**chat, "max_batch": 4, "upgrade": "new_cluster"}])
    assert stack.up().code == 0
    by_new_cluster = upgrade(api, stack, "newer")
    return Journey(
        stack,
        up,
        loss,
        **first,
        **edit,
        in_place=in_place,
        by_new_cluster=by_new_cluster,
        destroyed=stack.destroy(),
        left=left(api),
        processes=sorted(processes(cluster) - before),
    )


def trained(stack: RealStack) -> TrainSpec:
    [run] = [one for one in stack.config.workloads if isinstance(one, TrainSpec)]
    return run


def upgrade(api: Any, stack: RealStack, tag: str) -> Upgrade:
    image = stack.declared["images"]["ray"].rpartition(":")[0]
    stack.declare(images={"ray": f"{image}:{tag}"})
    answered: list[str] = []
    failed: list[str] = []

    def try_it() -> None:
        try:
            answered.append(ask(api, ANSWER_LIMIT_S, RECONNECTS)["id"])
        except (httpx.HTTPError, ApiServerError) as error:
            failed.append(repr(error))

    with Watcher(try_it):
        done = stack.up()
    images = {pod["spec"]["containers"][0]["image"] for pod in items(api, PODS)}
    return Upgrade(done, serving(api), images, len(answered), failed)


def processes(cluster: Instance) -> set[str]:
    """Of all that the cluster runs: its programs, and what its pods are.

    Without the operator, whose pod may start after the cluster is ready, and start again.
    """
    supervisor = cluster.process()
    assert supervisor
    found = set()
    for process in supervisor.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.add(f"{process.pid} {' '.join(process.cmdline())}")
    return {one for one in found if operator.NAME not in one}


def tpu_nodes(api: Any) -> dict[str, str]:
    """Where each pod with chips is, by its name."""
    found = {}
    for pod in items(api, PODS):
        chips = pod["spec"]["containers"][0]["resources"].get("limits", {})
        if "google.com/tpu" in chips and "nodeName" in pod["spec"]:
            found[pod["metadata"]["name"]] = pod["spec"]["nodeName"]
    return found


def by_name(api: Any, path: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in items(api, path)}


def serving(api: Any) -> str:
    service = request(api, "GET", f"{ray(TEAM, 'rayservices')}/chat")
    return service["status"]["activeServiceStatus"]["rayClusterName"]


def ask(api: Any, limit_s: float = 120, reconnects: int = 0) -> dict[str, Any]:
    """What the model says at the service's cluster address."""
    service = request(api, "GET", f"/api/v1/namespaces/{TEAM}/services/chat-serve-svc")
    url = f"http://{service['spec']['clusterIP']}:8000/v1/completions"
    transport = httpx.HTTPTransport(retries=reconnects)
    with httpx.Client(transport=transport, timeout=limit_s) as client:
        answer = client.post(url, json=QUESTION)
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


@pytest.mark.parametrize(("workload", "hosts"), [("pretrain", HOSTS), ("chat", 1)])
def test_the_pods_of_a_slice_have_a_whole_slice(journey, workload, hosts):
    nodes = [node for pod, node in journey.nodes.items() if pod.startswith(f"{workload}-")]
    assert len({*nodes}) == hosts
    [pool] = {journey.pools[node] for node in nodes}
    assert sum(one == pool for one in journey.pools.values()) == hosts


def test_a_slice_that_lost_a_host_is_replaced_whole(journey):
    """As KubeRay replaces a replica of several hosts: no host of the old one trains on."""
    assert len(journey.loss.before) == len(journey.loss.after) == HOSTS
    assert not journey.loss.before & journey.loss.after


def test_the_run_goes_on_from_what_was_saved_before(journey):
    train = trained(journey.stack)
    every, half = train.checkpoint_every, train.steps // 2
    # The last save but one was waited for when the last one began.
    assert min(journey.loss.resumed) >= (half // every - 1) * every > 0
    assert journey.loss.resumed == sorted(journey.loss.resumed)


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
    """As upgrade: in_place says: the old one goes first, for the quota has chips for one alone."""
    upgraded = journey.in_place
    assert upgraded.done.code == 0, upgraded.done.output
    assert upgraded.cluster != journey.cluster
    assert {one.rpartition(":")[2] for one in upgraded.images} == {"new"}
    assert upgraded.failed


def test_with_upgrade_new_cluster_no_question_stays_unanswered(journey):
    upgraded = journey.by_new_cluster
    assert upgraded.done.code == 0, upgraded.done.output
    assert upgraded.cluster != journey.in_place.cluster
    assert "newer" in {one.rpartition(":")[2] for one in upgraded.images}
    assert upgraded.answered
    assert upgraded.failed == []


def test_in_the_end_nothing_is_left(journey):
    assert journey.destroyed.code == 0, journey.destroyed.output
    assert journey.left == []


def test_in_the_end_no_process_is_left(journey):
    assert journey.processes == []
