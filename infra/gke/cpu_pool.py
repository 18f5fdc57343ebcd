"""Nodes without TPU: for Ray heads, data jobs and the system's own pods.

GKE wants one such pool in every Standard cluster. Its nodes carry no taint, and those of TPUs do,
so all that asks for no TPU comes here.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.config import GkeCluster, StackConfig
from infra.gke import names, node_config
from infra.gke.addresses import CPU_PODS_PER_NODE
from infra.gke.args import Args

NAME = "cpu"


@dataclass(frozen=True)
class CpuPoolArgs:
    pool: Args


def cpu_pool_args(config: StackConfig) -> CpuPoolArgs | None:
    """None for Autopilot, which has no pools to make."""
    cluster = names.google_cluster(config)
    if not isinstance(cluster, GkeCluster):
        return None
    declared = cluster.cpu_pool
    zones = cluster.zones[: declared.max_nodes]
    return CpuPoolArgs(
        {
            "name": NAME,
            "project": cluster.project,
            "location": cluster.location,
            "cluster": names.stack_name(config),
            "node_locations": [*zones],
            # Of each zone; the autoscaler counts over all of them.
            "initial_node_count": max(1, declared.min_nodes // len(zones)),
            "autoscaling": {
                "total_min_node_count": declared.min_nodes,
                "total_max_node_count": declared.max_nodes,
                "location_policy": "BALANCED",
            },
            "max_pods_per_node": CPU_PODS_PER_NODE,
            "network_config": {"enable_private_nodes": True},
            "management": {"auto_repair": True, "auto_upgrade": True},
            "upgrade_settings": {"strategy": "SURGE", "max_surge": 1, "max_unavailable": 0},
            "node_config": {
                **node_config.common(config),
                "machine_type": declared.machine_type,
                "shielded_instance_config": {
                    "enable_secure_boot": True,
                    "enable_integrity_monitoring": True,
                },
                "labels": {names.TEAM_LABEL: names.labels(config)["team"]},
                "resource_labels": names.labels(config),
            },
        }
    )


class CpuPool(pulumi.ComponentResource):
    """One autoscaled node pool."""

    def __init__(
        self, name: str, args: CpuPoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("raytpu:gke:CpuPool", name, None, opts)
        gcp.container.NodePool(
            name,
            **args.pool,
            opts=pulumi.ResourceOptions(
                parent=self,
                # The autoscaler's, from the first hour on.
                ignore_changes=[*node_config.IGNORED, "initialNodeCount"],
                delete_before_replace=True,  # the name is taken until then
            ),
        )
        self.register_outputs({})
