"""The real provider at a real API server, from empty to empty again. KubeRay is played."""

import base64
import copy
import json
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes import client

from infra.ray.objects import KubernetesObject, objects
from tests.cluster.played import PlayedOperator
from tests.cluster.real_stack import RealStack
from tests.cluster.seen import names, request
from tests.tools.project import Done

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

API_KEY = "api-key-of-a-test"
CHAT = {"machine_type": "ct6e-standard-4t", "topology": "2x2"}
PLURALS = {"ComputeClass": "computeclasses", "NetworkPolicy": "networkpolicies"}
LAB = {"name": "lab", "kind": "cluster", "slice": "lab"}


@dataclass(frozen=True)
class Life:
    """What each command said, and what was in the API server after `up`."""

    stack: RealStack
    first: Done
    up: Done
    there: dict[str, dict[str, Any]]
    state: str
    again: Done
    refreshed: Done
    edited: Done
    after_edit: dict[str, dict[str, Any]]
    destroyed: Done


def with_every_kind(stack: RealStack) -> None:
    """Roles for members, a budget for copies of a service, a cluster to work on, and a secret."""
    train, chat = stack.declared["slices"]
    data, pretrain, serve = stack.declared["workloads"]
    team = {**stack.declared["team"], "members": ["ml@example.com"]}
    serve = {**serve, "mesh": {"tensor": 4}}
    stack.declare(
        team=team,
        slices=[train, {**chat, "count": 2}, {"name": "lab", **CHAT}],
        workloads=[data, pretrain, serve, LAB],
    )
    stack.ok("config", "set", "--secret", "--path", "raytpu:workloads[2].api_key", API_KEY)


def found(api: client.ApiClient, stack: RealStack) -> dict[str, dict[str, Any]]:
    """What the API server keeps of each object of the stack."""
    return {one.key: request(api, "GET", path(one)) for one in objects(stack.config)}


def path(one: KubernetesObject) -> str:
    version, metadata = one.manifest["apiVersion"], one.manifest["metadata"]
    root = f"/{'apis' if '/' in version else 'api'}/{version}"
    within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{within}/{PLURALS.get(one.kind, one.kind.lower() + 's')}/{metadata['name']}"


def left(api: client.ApiClient, name: str) -> list[str]:
    """Namespaces and compute classes of the stack."""
    paths = ("/api/v1/namespaces", "/apis/cloud.google.com/v1/computeclasses")
    return [one for listed in paths for one in names(api, listed) if name in one]


@pytest.fixture(scope="module")
def life(control_plane, provider, tmp_path_factory) -> Life:  # noqa: ARG001 - built before
    stack = RealStack.apart(tmp_path_factory.mktemp("life"), control_plane.kubeconfig, "life")
    with_every_kind(stack)
    with PlayedOperator(control_plane.api, stack.name):
        first, up = stack.preview(), stack.up()
        there = found(control_plane.api, stack)
        state = stack.pulumi("stack", "export").output
        again = stack.preview("--diff", "--expect-no-changes")
        refreshed = refresh(stack)
        edit_serve_config(stack)
        edited = stack.up()
        after_edit = found(control_plane.api, stack)
        destroyed = stack.destroy()
    return Life(stack, first, up, there, state, again, refreshed, edited, after_edit, destroyed)


def refresh(stack: RealStack) -> Done:
    stack.ok("refresh", "--yes", "--skip-preview")
    return stack.preview("--diff", "--expect-no-changes")


def edit_serve_config(stack: RealStack) -> None:
    data, pretrain, serve, lab = copy.deepcopy(stack.declared["workloads"])
    stack.declare(workloads=[data, pretrain, {**serve, "max_batch": 2}, lab])
    stack.ok("config", "set", "--secret", "--path", "raytpu:workloads[2].api_key", API_KEY)


def test_the_first_preview_of_an_empty_cluster_only_creates(life):
    assert life.first.code == 0, life.first.output
    assert life.first.counts.keys() == {"create"}


def test_up_makes_what_the_preview_said(life):
    assert life.up.code == 0, life.up.output
    assert life.up.counts == {"created": life.first.counts["create"]}


def lost(declared: Any, kept: Any, path: str = "") -> list[str]:
    """Places where the API server keeps something else than what it was given."""
    if isinstance(declared, dict) and isinstance(kept, dict):
        return [p for key in declared for p in lost(declared[key], kept.get(key), f"{path}.{key}")]
    if isinstance(declared, list) and isinstance(kept, list) and len(declared) == len(kept):
        pairs = zip(declared, kept, strict=True)
        return [p for i, (one, other) in enumerate(pairs) for p in lost(one, other, f"{path}[{i}]")]
    return [] if declared == kept else [f"{path}: {kept!r} for {declared!r}"]


def test_the_api_server_drops_and_changes_nothing(life):
    manifests = {one.key: one.manifest for one in objects(life.stack.config)}
    del manifests["Secret/chat"]  # its values are written, and read back as data
    manifests["RayService/chat"] = {}  # edited since
    kinds = {key.partition("/")[0] for key in manifests}
    assert {"RayCluster", "ComputeClass", "RoleBinding", "PodDisruptionBudget"} <= kinds
    assert {key: lost(one, life.there[key]) for key, one in manifests.items()} == {
        key: [] for key in manifests
    }


def test_a_stack_that_is_up_has_nothing_to_change(life):
    assert life.again.code == 0, life.again.output


def test_what_the_api_server_fills_in_is_no_change(life):
    assert life.refreshed.code == 0, life.refreshed.output


def test_a_serve_config_edit_updates_the_service_in_place(life):
    assert life.edited.code == 0, life.edited.output
    assert life.edited.counts["updated"] == 1
    assert "replaced" not in life.edited.counts
    before, after = life.there["RayService/chat"], life.after_edit["RayService/chat"]
    assert before["metadata"]["uid"] == after["metadata"]["uid"]
    assert "max_batch: 2" in after["spec"]["serveConfigV2"]
    same = "rayClusterConfig"
    assert before["spec"][same] == after["spec"][same]


def test_destroy_leaves_nothing(life, control_plane):
    assert life.destroyed.code == 0, life.destroyed.output
    assert left(control_plane.api, life.stack.name) == []


def test_a_secret_reaches_its_object_and_neither_state_nor_output(life):
    holders = [key for key, one in life.there.items() if encoded(API_KEY) in json.dumps(one)]
    assert holders == ["Secret/chat"]
    said = [life.first, life.up, life.again, life.refreshed, life.edited, life.destroyed]
    texts = [life.state, *(done.output for done in said), *files(life.stack)]
    for secret in (API_KEY, encoded(API_KEY)):
        assert not [text[:80] for text in texts if secret in text]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def files(stack: RealStack) -> list[str]:
    paths = [path for path in stack.root.rglob("*") if path.is_file()]
    assert any(".raytpu/state" in str(path) for path in paths)
    return [path.read_text(errors="replace") for path in paths]
