"""The cluster: GKE Standard or Autopilot, with the Ray operator and what its workloads use.

The control plane is reached by its DNS name, which Google guards with its own identities, so
nothing of the network decides who gets in. Its address answers only to the networks a stack file
authorises, and to nobody without one.

Of the version nothing is pinned: nodes and control plane follow the release channel from the least
version on that a stack file gives.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.config import AutopilotCluster, GkeCluster, StackConfig
from infra.gke import auto_provisioning, maintenance, names, network, node_config
from infra.gke.args import Args

METRICS = (
    "SYSTEM_COMPONENTS",  # TPU duty cycle and memory are among these
    "STORAGE",
    "HPA",
    "POD",
    "DAEMONSET",
    "DEPLOYMENT",
    "STATEFULSET",
    "CADVISOR",
    "KUBELET",
)
LOGS = ("SYSTEM_COMPONENTS", "WORKLOADS")

IGNORED = (
    # Of the pool that is removed as soon as the cluster is there. GKE answers with those of
    # whichever pool is first, and a difference would replace the cluster.
    "nodeConfig",
    "initialNodeCount",
)


@dataclass(frozen=True)
class ClusterArgs:
    cluster: Args


def cluster_args(config: StackConfig) -> ClusterArgs:
    cluster = names.google_cluster(config)
    if isinstance(cluster, AutopilotCluster):
        return ClusterArgs({**_common(config), **_autopilot(config)})
    return ClusterArgs({**_common(config), **_standard(config, cluster)})


def protected(config: StackConfig) -> bool:
    """Whether the cluster refuses to be deleted. Google's provider would protect every one."""
    protection = names.google_cluster(config).deletion_protection
    return config.environment == "prod" if protection is None else protection


def _common(config: StackConfig) -> Args:
    cluster = names.google_cluster(config)
    name = names.stack_name(config)
    args: Args = {
        "name": name,
        "project": cluster.project,
        "location": cluster.location,
        "network": name,
        "subnetwork": name,
        "ip_allocation_policy": {
            "cluster_secondary_range_name": network.PODS,
            "services_secondary_range_name": network.SERVICES,
        },
        "release_channel": {"channel": cluster.release_channel.upper()},
        "deletion_protection": protected(config),
        "addons_config": _addons(),
        "secret_manager_config": {"enabled": True},
        "private_cluster_config": {"enable_private_nodes": True},
        **_endpoints(config),
        "logging_config": {"enable_components": [*LOGS]},
        "monitoring_config": {
            "enable_components": [*METRICS],
            "managed_prometheus": {"enabled": True},
        },
        "cost_management_config": {"enabled": True},
        "resource_labels": names.labels(config),
        **maintenance.policy(cluster.maintenance),
    }
    if cluster.version is not None:
        args["min_master_version"] = cluster.version
    return args


def _standard(config: StackConfig, cluster: GkeCluster) -> Args:
    others = [zone for zone in cluster.zones if zone != cluster.location]
    return {
        "node_locations": others,
        "networking_mode": "VPC_NATIVE",
        # Dataplane V2: without it a NetworkPolicy is accepted and does nothing.
        "datapath_provider": "ADVANCED_DATAPATH",
        "enable_shielded_nodes": True,
        "workload_identity_config": {"workload_pool": f"{cluster.project}.svc.id.goog"},
        # GKE makes a cluster with a pool only; the node pools of this stack are resources apart.
        "remove_default_node_pool": True,
        "initial_node_count": 1,
        "node_config": {"service_account": names.node_account(config)},
        "node_pool_defaults": {
            "node_config_defaults": {
                "gcfs_config": {"enabled": True},
                "insecure_kubelet_readonly_port_enabled": "FALSE",
            }
        },
        **auto_provisioning.args(config),
    }


def _autopilot(config: StackConfig) -> Args:
    """What GKE lets one choose. It sees to nodes, Dataplane V2 and Workload Identity itself."""
    return {
        "enable_autopilot": True,
        "cluster_autoscaling": {
            "auto_provisioning_defaults": {
                "service_account": names.node_account(config),
                "oauth_scopes": [node_config.SCOPE],
            }
        },
        "node_pool_auto_config": {
            "node_kubelet_config": {"insecure_kubelet_readonly_port_enabled": "FALSE"}
        },
    }


def _addons() -> Args:
    on = {"enabled": True}
    ray = {**on, "ray_cluster_logging_config": on, "ray_cluster_monitoring_config": on}
    return {"ray_operator_configs": [ray], "gcs_fuse_csi_driver_config": on}


def _endpoints(config: StackConfig) -> Args:
    authorized = names.google_cluster(config).authorized_networks
    endpoints: Args = {
        "control_plane_endpoints_config": {
            "dns_endpoint_config": {"allow_external_traffic": True},
            "ip_endpoints_config": {"enabled": bool(authorized)},
        }
    }
    if authorized:
        endpoints["master_authorized_networks_config"] = {
            "cidr_blocks": [
                {"display_name": network.name, "cidr_block": network.cidr} for network in authorized
            ],
            "gcp_public_cidrs_access_enabled": False,
        }
    return endpoints


class Cluster(pulumi.ComponentResource):
    """The cluster. Nodes come with the pools, or with a compute class."""

    server: pulumi.Output[str]
    """Address of the control plane."""

    def __init__(
        self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("raytpu:gke:Cluster", name, None, opts)
        cluster = gcp.container.Cluster(
            name,
            **args.cluster,
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=[*IGNORED]),
        )
        endpoint = cluster.control_plane_endpoints_config.dns_endpoint_config.endpoint
        self.server = pulumi.Output.format("https://{}", endpoint)
        self.register_outputs({"server": self.server})
