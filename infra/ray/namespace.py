"""A team's namespace: what its members may see, how many chips it may take, who reaches its Ray.

Ray's own ports need no password, and whoever reaches one runs code with the workload's rights. So
nothing outside of the namespace does, save the operator and what collects metrics.
"""

from collections.abc import Sequence
from typing import Any

from infra.config import ServeSpec, StackConfig, Team, Workload
from infra.gke.names import BUDGET, DASHBOARD_PORT, KUBERAY, SERVE_PORT, namespace
from infra.ray.manifests import kuberay
from infra.ray.pods import WORKLOAD_LABEL
from infra.tpu.catalog import CHIP_RESOURCE
from infra.tpu.slice import TpuSlice

Manifest = dict[str, Any]

MEMBERS = "raytpu-members"
OPERATOR = "kuberay-operator"
OPERATOR_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/component")
"""Of its pods, in whichever namespace: GKE does not say in which its add-on runs."""
OPERATOR_PORTS = (DASHBOARD_PORT, SERVE_PORT)
"""Where it submits jobs and applications, and where it asks whether a head can serve."""
SYSTEM_NAMESPACES = ("kube-system",)
"""Google's own. What runs beside the control plane, as the add-on may, comes in by a pod there."""
METRICS_NAMESPACES = ("gmp-system", "gke-gmp-system")
"""Of managed Prometheus on Standard and Autopilot."""

_LOOK = ("get", "list", "watch")


def objects(config: StackConfig) -> list[Manifest]:
    """The namespace and what guards it, the namespace first."""
    made = [_namespace(config), _quota(config), _default_policy(config), _metrics_policy(config)]
    if _team(config).members:
        made += [_role(config), _role_binding(config)]
    return made


def service_account(config: StackConfig, workload: Workload) -> Manifest:
    """By this name Google's roles are given to the workload alone, without a key."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(config, workload.name),
        "automountServiceAccountToken": False,
    }


def disruption_budget(config: StackConfig, workload: ServeSpec) -> Manifest | None:
    """Of a service of several copies: GKE may take one at a time, for an upgrade or a better rung.

    A count of those that stay, for Kubernetes knows no size of a Ray cluster to subtract from.
    """
    tpu = config.slice(workload.slice)
    if tpu.count == 1:
        return None
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(config, workload.name),
        "spec": {
            "minAvailable": tpu.workers - tpu.hosts,
            "selector": {
                "matchLabels": {WORKLOAD_LABEL: workload.name, "ray.io/node-type": "worker"}
            },
        },
    }


def _namespace(config: StackConfig) -> Manifest:
    team = _team(config)
    labels = {
        "raytpu/team": team.name,
        "raytpu/stack": config.stack,
        # A pod here must not take over its node. TPU pods need nothing that this refuses.
        "pod-security.kubernetes.io/enforce": "baseline",
    }
    annotations = {KUBERAY: ".".join(map(str, kuberay(config)))}
    if team.max_usd_per_month is not None:
        annotations[BUDGET] = str(team.max_usd_per_month)
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace(config), "labels": labels, "annotations": annotations},
    }


def _quota(config: StackConfig) -> Manifest:
    """As many chips as the stack declares, and no service that is reached from outside."""
    hard = {
        f"requests.{CHIP_RESOURCE}": str(_team(config).max_chips or declared_chips(config)),
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": _metadata(config, "raytpu"),
        "spec": {"hard": hard},
    }


def declared_chips(config: StackConfig) -> int:
    """The most that the stack's workloads can ask for at once."""
    return sum(tpu.most_chips * sets_at_once(config, tpu) for tpu in config.slices)


def sets_at_once(config: StackConfig, tpu: TpuSlice) -> int:
    """How often all copies of a slice are there: twice while an upgrade fills a second cluster."""
    served = [w for w in config.workloads if isinstance(w, ServeSpec) and w.slice == tpu.name]
    return 2 if any(w.upgrade == "new_cluster" for w in served) else 1


def _default_policy(config: StackConfig) -> Manifest:
    """Closed to other namespaces. Egress stays open.

    Pods reach buckets, the hub and the metadata server, and for metrics of their chips a port of
    their own node, which under Dataplane V2 no address range can name.
    """
    operator = [
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {label: OPERATOR}}}
        for label in OPERATOR_LABELS
    ]
    peers = [*operator, _namespaces(SYSTEM_NAMESPACES)]
    ports = [{"protocol": "TCP", "port": port} for port in OPERATOR_PORTS]
    return _policy(
        config,
        "raytpu-default",
        [
            {"from": [{"podSelector": {}}]},
            {"from": peers, "ports": ports},
        ],
    )


def _metrics_policy(config: StackConfig) -> Manifest:
    ports = [{"protocol": "TCP", "port": 8080}]
    return _policy(
        config, "raytpu-metrics", [{"from": [_namespaces(METRICS_NAMESPACES)], "ports": ports}]
    )


def _namespaces(names: Sequence[str]) -> Manifest:
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [*names]}
    return {"namespaceSelector": {"matchExpressions": [named]}}


def _policy(config: StackConfig, name: str, ingress: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(config, name),
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _role(config: StackConfig) -> Manifest:
    """To look, to port-forward, and to restart a host by deleting its pod.

    What exists is decided by the stack file. Who could make a pod or enter one could read every
    secret of the namespace, so members can do neither.
    """
    rules = [
        {
            "apiGroups": [""],
            "resources": ["pods", "pods/log", "services", "events", "resourcequotas"],
            "verbs": [*_LOOK],
        },
        {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
        {
            "apiGroups": ["ray.io"],
            "resources": ["rayclusters", "rayjobs", "rayservices"],
            "verbs": [*_LOOK],
        },
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [*_LOOK]},
    ]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": _metadata(config, MEMBERS),
        "rules": rules,
    }


def _role_binding(config: StackConfig) -> Manifest:
    """An address does not say whether it is a person's or a group's, so it is bound as both."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(config, MEMBERS),
        "roleRef": {"apiGroup": group, "kind": "Role", "name": MEMBERS},
        "subjects": [
            {"kind": kind, "apiGroup": group, "name": member}
            for member in _team(config).members
            for kind in ("User", "Group")
        ],
    }


def _metadata(config: StackConfig, name: str) -> Manifest:
    return {"name": name, "namespace": namespace(config)}


def _team(config: StackConfig) -> Team:
    if config.team is None:
        raise TypeError("a stack without a team has no namespace")
    return config.team
