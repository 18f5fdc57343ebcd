"""The KubeRay operator as a Deployment, and the resource definitions that GKE has.

Role, account and Deployment are the operator's own manifests, from the module it is built from;
kustomize would only put them into a namespace and give them an image, which is done here.
"""

import gzip
import json
from collections.abc import Iterator
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


class OperatorError(Exception):
    """The API server did not take a manifest. One line with what it said."""


def install(api: client.ApiClient) -> None:
    """Everything: definitions, operator."""
    for manifest in [*definitions(), *operator()]:
        create(api, manifest)


def create(api: client.ApiClient, manifest: Manifest) -> None:
    """Of any kind whose plural is that with an s."""
    version = manifest["apiVersion"]
    url = f"{api.configuration.host}/{'apis' if '/' in version else 'api'}/{version}/"
    if namespace := manifest["metadata"].get("namespace"):
        url += f"namespaces/{namespace}/"
    headers = {"Content-Type": "application/json"}
    api.update_params_for_auth(headers, [], ["BearerToken"], url, "POST", manifest)
    answer = api.call_api(
        "POST", f"{url}{manifest['kind'].lower()}s", headers, manifest, None, REQUEST_LIMIT_S
    )
    if answer.status not in (OK, CREATED):
        raise OperatorError(f"the API server refused {url}: {answer.read().decode()}")


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
    """Whether the operator's pod has been ready for a moment, and so reconciles."""
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
