"""A stand-in for the Kubernetes provider, and for the API servers it talks to.

It knows a cluster by the address in the kubeconfig: that of a cluster in the stand-in of Google, or
one that a test says others made. An object is refused as the API server refuses it, and
annotations of pulumi.com/waitFor are held against a status that is played: an object goes through
all stages of its kind at once, or stays in the first.
"""

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tests.schemas import crd
from tests.standin import wire
from tests.standin.api import Api, Args, Made, RefusedError, UnhealthyError
from tests.standin.gcp import NODE_POOL, GoogleCloud
from tests.standin.node_pool import is_tpu
from tests.standin.wire import UNKNOWN, at, spelled

WAIT_FOR = "pulumi.com/waitFor"
RAY = "ray.io/v1"
KUBERNETES = "1.33"
CUSTOM = {
    "ComputeClass": "8067eae",
    "RayCluster": "v1.5.0",
    "RayJob": "v1.5.0",
    "RayService": "v1.5.0",
    "SecretProviderClass": "v1.4.8",
}
"""Versions of what the API server is told by CRDs."""
CLUSTER_SCOPED = {"ComputeClass", "Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding"}
BORN_WITH = {"default", "kube-system", "kube-public"}
"""Namespaces of a new cluster."""

_SETTLED = {"type": "UpgradeInProgress", "status": "False"}
STAGES: dict[str, list[Args]] = {
    "RayJob": [
        {"jobDeploymentStatus": "Initializing"},
        {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"},
        {
            "jobDeploymentStatus": "Complete",
            "jobStatus": "SUCCEEDED",
            "endTime": "2026-01-01T00:00:00Z",
        },
    ],
    "RayService": [
        {"serviceStatus": "", "conditions": [{"type": "Ready", "status": "False"}, _SETTLED]},
        {
            "serviceStatus": "Running",
            "numServeEndpoints": 1,
            "conditions": [{"type": "Ready", "status": "True"}, _SETTLED],
        },
    ],
    "RayCluster": [
        {"conditions": [{"type": "HeadPodReady", "status": "False"}]},
        {
            "state": "ready",
            "conditions": [
                {"type": "HeadPodReady", "status": "True"},
                {"type": "RayClusterProvisioned", "status": "True"},
            ],
        },
    ],
    "ComputeClass": [
        {"conditions": [{"type": "Health", "status": "False"}]},
        {"conditions": [{"type": "Health", "status": "True"}]},
    ],
}
"""What KubeRay 1.5 and GKE report of an object that comes up."""


class Kubernetes(Api):
    version = "4.34.2"

    def __init__(self, google: GoogleCloud) -> None:
        super().__init__()
        self.google = google
        self.others: set[str] = set()
        """Addresses of clusters that others made, with the Ray operator in them."""
        self.kubeconfig = ""
        """Where kubectl would look: used where a stack names no file."""
        self.stuck: set[str] = set()
        """Kinds of which objects stay in their first stage."""
        self.stages = {**STAGES}

    def identify(self, made: Made) -> str:
        names = (at(made.args, "metadata.namespace"), at(made.args, "metadata.name"))
        name = "/".join(filter(None, names))
        return f"{made.args['apiVersion']}/{made.args['kind']}/{name}"

    def replaces(self, _type: str, path: wire.Path, /) -> bool:
        return spelled(path) in {"kind", "apiVersion", "metadata.name", "metadata.namespace"}

    def faults(self, made: Made) -> Iterator[str]:
        kind, metadata = made.args["kind"], made.args["metadata"]
        if metadata == UNKNOWN:
            return
        if not re.fullmatch(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", metadata["name"]):
            yield f'{kind} "{metadata["name"]}" is invalid: metadata.name'
        if kind in CLUSTER_SCOPED and metadata.get("namespace"):
            yield f"{kind} is not namespaced"
        if kind not in CLUSTER_SCOPED and not metadata.get("namespace"):
            yield f"{kind} {metadata['name']} has no namespace, and would go to `default`"
        if UNKNOWN not in json.dumps(made.args):
            yield from _schema_faults(made.args)

    def create(self, made: Made) -> None:
        self._require_kind(made)
        namespace = at(made.args, "metadata.namespace")
        known = BORN_WITH | {one["metadata"]["name"] for one in self.objects("Namespace")}
        if namespace and namespace not in known:
            raise RefusedError(f'namespaces "{namespace}" not found')
        made.filled["metadata.uid"] = str(uuid.uuid4())
        self._play(made)

    def update(self, made: Made, args: Args) -> None:
        made.args = args
        self._require_kind(made)
        self._play(made)

    def delete(self, made: Made) -> None:
        self._require_kind(made)

    def objects(self, kind: str) -> list[Args]:
        return [made.args for made in self.made.values() if made.args["kind"] == kind]

    def _require_kind(self, made: Made) -> None:
        args = made.args
        address = _address(self.configs.get(made.stack, {}).get("kubeconfig") or self.kubeconfig)
        cluster = self.google.cluster_at(address)
        if cluster is None and address not in self.others:
            raise RefusedError(f"configured Kubernetes cluster is unreachable: {address or 'none'}")
        if cluster is None or args["apiVersion"] != RAY:
            return
        addon = at(cluster.args, "addonsConfig.rayOperatorConfigs") or [{"enabled": False}]
        pools = [m.args for m in self.google.of_type(NODE_POOL) if not is_tpu(m.args)]
        if not addon[0]["enabled"] or not (pools or cluster.args.get("enableAutopilot")):
            raise RefusedError(f'no matches for kind "{args["kind"]}" in version "{RAY}"')

    def _play(self, made: Made) -> None:
        """The object's status, up to the first stage that is what was waited for."""
        stages = self.stages.get(made.args["kind"], [])
        if made.args["kind"] in self.stuck:
            stages = stages[:1]
        wanted = at(made.args, ("metadata", "annotations", WAIT_FOR))
        conditions = [*_conditions(wanted)] if wanted else []
        for status in stages:
            made.filled["status"] = status
            live = {"status": status}
            if conditions and all(_holds(condition, live) for condition in conditions):
                return
        if conditions:
            raise UnhealthyError(
                f'resource "{self.identify(made)}" was successfully created, but the Kubernetes '
                "API server reported that it failed to fully initialize or become live: timed out "
                "waiting for the condition"
            )


def _schema_faults(args: Args) -> Iterator[str]:
    if version := CUSTOM.get(args["kind"]):
        yield from crd.faults(args, version)
        return
    try:
        kubernetes_validate.validate(args, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"


def _address(kubeconfig: str) -> str:
    """Host of the server in a kubeconfig, given as text or as a file."""
    text = Path(kubeconfig).read_text() if kubeconfig.startswith("/") else kubeconfig
    parsed: Any = yaml.safe_load(text)
    if not isinstance(parsed, dict) or not parsed.get("clusters"):
        return ""
    return str(parsed["clusters"][0]["cluster"]["server"]).removeprefix("https://")


def _conditions(wanted: str) -> Iterator[str]:
    """One condition, or a JSON list of them that must all hold."""
    listed = json.loads(wanted) if wanted.startswith("[") else [wanted]
    for condition in listed:
        if not re.fullmatch(r"condition=\w+(=\w+)?|jsonpath=\{.+\}(=\w+)?", condition):
            raise RefusedError(f'expected a "jsonpath=" or "condition=" prefix, got "{condition}"')
        yield condition


def _holds(condition: str, live: Args) -> bool:
    what, _, rest = condition.partition("=")
    if what == "jsonpath":
        return _selects(rest, live)
    name, _, value = rest.partition("=")
    known = {c["type"]: c["status"] for c in at(live, "status.conditions") or []}
    return known.get(name) == (value or "True")


def _selects(expression: str, live: Args) -> bool:
    """Of RFC 9535 what the stack uses: `{.a.b}`, `{.a.b}=value`, and `{[?TEST || TEST]}`."""
    path, _, value = expression[1:].partition("}")
    if path.startswith("[?"):
        tests = path[2:-1].split(" || ")
        return any(_passes(test, one) for test in tests for one in live.values())
    found = at(live, path.strip("."))
    return found is not None and value in ("", f"={found}")


def _passes(test: str, one: Args) -> bool:
    """`@.name`, which must be there, or `@.name == "value"`."""
    name, _, value = test.removeprefix("@.").partition(" == ")
    return name in one and value in ("", f'"{one[name]}"')
