"""What the user of a stack needs to know of it. All of it follows from the stack file."""

from typing import Any, get_args

from infra.config import ClusterSpec, ExistingCluster, ServeSpec, StackConfig
from infra.gke import kubeconfig, names, registry
from infra.gke.names import DASHBOARD_PORT, SERVE_PORT, Role


def outputs(config: StackConfig) -> dict[str, Any]:
    served = [workload for workload in config.workloads if isinstance(workload, ServeSpec)]
    with_head = [w for w in config.workloads if isinstance(w, ServeSpec | ClusterSpec)]
    here = {
        "namespace": names.namespace(config),
        # KubeRay's own names of the services it makes. None is reachable from outside.
        "urls": {w.name: _url(config, f"{w.name}-serve-svc") for w in served},
        "open_services": {
            w.name: _forward(config, f"{w.name}-serve-svc", SERVE_PORT) for w in served
        },
        "open_dashboards": {
            w.name: _forward(config, f"{w.name}-head-svc", DASHBOARD_PORT) for w in with_head
        },
    }
    return here if isinstance(config.cluster, ExistingCluster) else {**_cloud(config), **here}


def _cloud(config: StackConfig) -> dict[str, Any]:
    cluster = names.google_cluster(config)
    name = names.stack_name(config)
    return {
        "cluster": name,
        "kubeconfig_command": kubeconfig.command(name, cluster.location, cluster.project),
        "image_repository": registry.address(config),
        "buckets": {role: f"gs://{names.bucket_name(config, role)}" for role in get_args(Role)},
    }


def _url(config: StackConfig, service: str) -> str:
    return f"http://{service}.{names.namespace(config)}.svc.cluster.local:{SERVE_PORT}"


def _forward(config: StackConfig, service: str, port: int) -> str:
    namespace = names.namespace(config)
    return f"kubectl --namespace {namespace} port-forward service/{service} {port}:{port}"
