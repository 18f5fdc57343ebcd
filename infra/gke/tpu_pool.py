"""The nodes of one declared slice: its node pools, and the workload policies it is placed by.

In GKE a multi-host slice is one node pool of exactly its hosts, there as a whole or not at all; so
each copy is a pool, and more copies only add pools. Single-host slices share a pool, whose nodes
are slices of their own. For a slice that comes by a compute class GKE makes the pools, and only the
policy is made here.

GKE taints TPU nodes with google.com/tpu itself, and those of flex-start and queued pools with their
own kind; no taint is added here, for no other pod can come to such a node.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.config import StackConfig
from infra.gke import names, node_config
from infra.gke.addresses import TPU_PODS_PER_NODE
from infra.gke.args import Args
from infra.tpu.capacity import FlexStart, Queued, Reservation, Rung, Spot
from infra.tpu.slice import TpuSlice

RESERVATION_KEY = "compute.googleapis.com/reservation-name"


REPLACED = ("nodeConfig.machineType", "placementPolicy.tpuTopology")
"""What Google's provider would change in place (hashicorp/terraform-provider-google 069a33d): the
machine by GKE, which has no other for a slice, and the topology by saying so and doing nothing."""


@dataclass(frozen=True)
class TpuPoolArgs:
    pools: tuple[Args, ...]
    policies: tuple[Args, ...]


def tpu_pool_args(config: StackConfig, tpu: TpuSlice) -> TpuPoolArgs:
    pools: tuple[Args, ...] = ()
    if tpu.provision == "node_pools":
        named = zip(names.pool_names(tpu), tpu.pools, strict=True)
        pools = tuple(_pool(config, tpu, name, nodes) for name, nodes in named)
    policies = (_policy(config, shape) for shape in tpu.shapes)
    return TpuPoolArgs(pools, tuple(policy for policy in policies if policy is not None))


def _pool(config: StackConfig, tpu: TpuSlice, name: str, nodes: int) -> Args:
    cluster = names.google_cluster(config)
    (rung,) = tpu.capacity  # a ladder takes a compute class
    (zone,) = (rung.terms.zone,) if rung.terms.zone else cluster.zones  # a slice lies in one
    return {
        "name": name,
        "project": cluster.project,
        "location": cluster.location,
        "cluster": names.stack_name(config),
        "node_locations": [zone],
        "max_pods_per_node": TPU_PODS_PER_NODE,
        "network_config": {"enable_private_nodes": True},
        "node_config": _node_config(config, tpu, rung),
        # A host of flex-start runs once: GKE refuses to repair it.
        "management": {"auto_repair": not _is_flex(rung), "auto_upgrade": True},
        **_size(tpu, nodes),
        **_placement(config, tpu),
        **_provisioning(rung),
    }


def _size(tpu: TpuSlice, nodes: int) -> Args:
    """How many nodes: all of them always, or none until pods ask.

    The limits are those of the zone: a total would leave the zone's at 0, which is no size of a
    multi-host slice. Nor may such a pool be resized, so its size is initial_node_count, once. Of an
    autoscaled one it is not said: 0 is the default, and GKE gives back what is there at the time.
    """
    if tpu.keep_nodes:
        return {"initial_node_count" if tpu.multi_host else "node_count": nodes}
    return {
        "autoscaling": {
            "min_node_count": 0,
            "max_node_count": nodes,
            # Wherever there is capacity: balanced zones cannot assemble a slice.
            "location_policy": "ANY",
        },
    }


def _placement(config: StackConfig, tpu: TpuSlice) -> Args:
    """What keeps the hosts of a slice on one interconnect. GKE refuses it for a single host."""
    if tpu.placement_topology is None:
        return {}
    placement = {"type": "COMPACT", "tpu_topology": tpu.placement_topology}
    if policy := names.workload_policy(config, tpu):
        # The SDK wants a type, and Google stores none: any other would replace the pool each time.
        placement = {**placement, "type": "", "policy_name": policy}
    return {"placement_policy": placement}


def _provisioning(rung: Rung) -> Args:
    """How nodes come and are renewed.

    On flex-start and queued pools GKE sets the one upgrade strategy they can have. An upgrade of
    others takes no spare hosts: nobody has a spare slice.
    """
    args: Args = {}
    if _is_queued(rung):
        args["queued_provisioning"] = {"enabled": True}
    if not _is_queued(rung) and not _is_flex(rung):
        args["upgrade_settings"] = {"strategy": "SURGE", "max_surge": 0, "max_unavailable": 1}
    return args


def _node_config(config: StackConfig, tpu: TpuSlice, rung: Rung) -> Args:
    team = names.labels(config)["team"]
    args: Args = {
        **node_config.common(config),
        "machine_type": tpu.machine.name,
        "disk_size_gb": tpu.boot_disk_gib,
        "gvnic": {"enabled": True},
        "labels": {names.SLICE_LABEL: tpu.name, names.TEAM_LABEL: team},
        "resource_labels": {**names.labels(config), "slice": tpu.name},
        "spot": isinstance(rung.terms, Spot),
        "reservation_affinity": _affinity(rung),
    }
    if disk := tpu.generation.boot_disk:
        args["disk_type"] = disk
    if isinstance(rung.terms, FlexStart):
        args["flex_start"] = True
        args["max_run_duration"] = f"{int(rung.terms.max_run_duration.total_seconds())}s"
    return args


def _affinity(rung: Rung) -> Args:
    """Always said: left out, it is whatever the API takes for the default."""
    if not isinstance(rung.terms, Reservation):
        return {"consume_reservation_type": "NO_RESERVATION"}
    return {
        "consume_reservation_type": "SPECIFIC_RESERVATION",
        "key": RESERVATION_KEY,
        "values": [rung.terms.path],
    }


def _is_flex(rung: Rung) -> bool:
    return isinstance(rung.terms, FlexStart)


def _is_queued(rung: Rung) -> bool:
    return isinstance(rung.terms, Queued) or (
        isinstance(rung.terms, FlexStart) and rung.terms.queued
    )


def _policy(config: StackConfig, shape: TpuSlice) -> Args | None:
    name = names.workload_policy(config, shape)
    if name is None:
        return None
    cluster = names.google_cluster(config)
    return {
        "name": name,
        "project": cluster.project,
        "region": cluster.region,
        "workload_policy": {"type": "HIGH_THROUGHPUT", "accelerator_topology": shape.topology},
    }


class TpuPool(pulumi.ComponentResource):
    """The node pools of one slice; each after the policy that it is placed by."""

    def __init__(
        self, name: str, args: TpuPoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("raytpu:gke:TpuPool", name, None, opts)
        policies = [
            gcp.compute.ResourcePolicy(
                f"{name}-policy-{index}",
                **policy,
                opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
            )
            for index, policy in enumerate(args.policies)
        ]
        for index, pool in enumerate(args.pools):
            gcp.container.NodePool(
                f"{name}-{index}",
                **pool,
                opts=pulumi.ResourceOptions(
                    parent=self,
                    depends_on=policies,
                    ignore_changes=[*node_config.IGNORED],
                    replace_on_changes=[*REPLACED],
                    # The name, and often the only capacity there is, are taken until then.
                    delete_before_replace=True,
                ),
            )
        self.register_outputs({})
