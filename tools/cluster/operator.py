"""The KubeRay operator as a Deployment, and the resource definitions that GKE has.

Role, account and Deployment are the operator's own manifests, from the module it is built from;
kustomize would only put them into a namespace and give them an image, which is done here.
"""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from http.client import CREATED, OK
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from tools.cluster.control_plane import ROOT
from tools.go.build import find

Manifest = dict[str, Any]

NAMESPACE = "ray-system"
NAME = "kuberay-operator"
IMAGE = "kuberay/operator"
VERSION = "v1.6.1"
LABELS = {"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/component": NAME}
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding"}
NOT_GO_MODULES = {
    # Of GKE's own API and of its add-on for secrets: our copies of their schemas, and their scope.
    "ComputeClass": ("cloud.google.com", "8067eae", "Cluster"),
    "SecretProviderClass": ("secrets-store.csi.x-k8s.io", "v1.4.8", "Namespaced"),
}
REQUEST_LIMIT_S = 30
START_LIMIT_S = 180
POLL_S = 0.2


class OperatorError(Exception):
    """The operator, or what it needs, is not there. One line with what was said."""


def install_definitions(api: client.ApiClient) -> None:
    """Makes them, and waits until the server has their kinds."""
    made = [*definitions()]
    for definition in made:
        create(api, definition)
    awaited = {definition["metadata"]["name"] for definition in made}
    wait(lambda: awaited <= _served(api), f"kinds of {', '.join(sorted(awaited))} are served")


def install_operator(api: client.ApiClient) -> None:
    """Makes it, and waits until its pod is ready, and so reconciles."""
    for manifest in operator():
        create(api, manifest)
    look = f"see kubectl describe pods -n {NAMESPACE}"
    wait(lambda: is_available(api), f"the operator is available ({look})")


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise OperatorError(f"not within {START_LIMIT_S} s: {what}")
        time.sleep(POLL_S)


def create(api: client.ApiClient, manifest: Manifest) -> None:
    """Of any kind whose plural is that with an s. Raises OperatorError."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    path = f"/{'apis' if '/' in version else 'api'}/{version}/"
    if namespace := manifest["metadata"].get("namespace"):
        path += f"namespaces/{namespace}/"
    status, said = _call(api, "POST", f"{path}{kind.lower()}s", manifest)
    if status not in (OK, CREATED):
        name = manifest["metadata"]["name"]
        raise OperatorError(f"the API server did not take {kind} {name}: {said}")


def _call(
    api: client.ApiClient, method: str, path: str, body: Manifest | None = None
) -> tuple[int, str]:
    """Of kinds for which the client has no function, and without a model of what is sent."""
    headers = {"Content-Type": "application/json"}
    api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
    url = f"{api.configuration.host}{path}"
    answer = api.call_api(method, url, headers, body, _request_timeout=REQUEST_LIMIT_S)
    return answer.status, answer.read().decode()


def _served(api: client.ApiClient) -> set[str]:
    """Names of the definitions whose kinds the server knows by now."""
    _, text = _call(api, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    return {
        one["metadata"]["name"]
        for one in json.loads(text)["items"]
        for condition in one.get("status", {}).get("conditions") or []
        if (condition["type"], condition["status"]) == ("Established", "True")
    }


def definitions() -> Iterator[Manifest]:
    """Of ComputeClass, of SecretProviderClass, and KubeRay's own."""
    for kind in NOT_GO_MODULES:
        yield _from_schema(kind)
    for file in sorted((_config() / "crd/bases").glob("*.yaml")):
        yield _without_texts(yaml.load(file.read_text(), yaml.CSafeLoader))


def operator() -> Iterator[Manifest]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    for folder in ("rbac", "manager"):
        yield from map(_placed, _resources(_config() / folder))


def is_available(api: client.ApiClient) -> bool:
    apps = client.AppsV1Api(api)
    deployment = apps.read_namespaced_deployment(NAME, NAMESPACE, _request_timeout=REQUEST_LIMIT_S)
    conditions = (deployment.status and deployment.status.conditions) or []
    return any(one.type == "Available" and one.status == "True" for one in conditions)


def _config() -> Path:
    return find(NAME, ROOT).parent / "config"


def _resources(folder: Path) -> Iterator[Manifest]:
    """What a folder's kustomization names."""
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    for name in names:
        yield from yaml.safe_load_all((folder / name).read_text())


def _placed(manifest: Manifest) -> Manifest:
    """As config/default of the operator would place it, with a namespace of its own."""
    metadata = {**manifest["metadata"], "labels": LABELS}
    if manifest["kind"] not in CLUSTER_WIDE:
        metadata["namespace"] = NAMESPACE
    placed = {**manifest, "metadata": metadata}
    if "subjects" in manifest:
        placed["subjects"] = [{**one, "namespace": NAMESPACE} for one in manifest["subjects"]]
    if manifest["kind"] == "Deployment":
        for container in manifest["spec"]["template"]["spec"]["containers"]:
            container["image"] = f"{IMAGE}:{VERSION}"
            del container["command"]  # the image's own, said once more
    if manifest["kind"] == "Service":
        placed["spec"] = {**manifest["spec"], "selector": LABELS}
    return placed


def _without_texts(schema: Any) -> Any:
    """Without descriptions, nine tenths of a definition: the server would take seconds for them.

    A field of that name has a schema, which is no text.
    """
    if isinstance(schema, list):
        return [_without_texts(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = schema.items()
    return {k: _without_texts(v) for k, v in kept if k != "description" or not isinstance(v, str)}


def _from_schema(kind: str) -> Manifest:
    group, version, scope = NOT_GO_MODULES[kind]
    file = ROOT / "tests/schemas" / f"{kind}-{version}.json.gz"
    plural = f"{kind.lower()}es"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": scope,
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}} if kind == "ComputeClass" else {},
                    "schema": {"openAPIV3Schema": json.loads(gzip.decompress(file.read_bytes()))},
                }
            ],
        },
    }
