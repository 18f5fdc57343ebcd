"""The cluster's own network: private nodes, a way out by Cloud NAT, no way in.

The project's default network is left alone: it has subnetworks in all regions and opens ports. No
firewall rules are made here either. GKE makes those a VPC-native cluster needs (node to node, pod
to node, control plane to node), and nothing else is to reach a node.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.config import StackConfig
from infra.gke import names
from infra.gke.addresses import ranges
from infra.gke.args import Args

PODS = "pods"
SERVICES = "services"
"""Names of the secondary ranges."""

JUMBO_MTU = 8896
"""The largest packet of Google's network: hosts of a slice exchange data in bulk."""
DEFAULT_MTU = 1460
"""Google's own default: larger packets are cut on their way to the internet."""

_NAT_PORTS = (64, 4096)
"""Least and most of a node. All its pods share them, and loading weights opens many connections."""


@dataclass(frozen=True)
class NetworkArgs:
    network: Args
    subnetwork: Args
    router: Args
    nat: Args


def network_args(config: StackConfig) -> NetworkArgs:
    cluster = names.google_cluster(config)
    name, region = names.stack_name(config), cluster.region
    placed = {"project": cluster.project, "region": region}
    return NetworkArgs(
        network={
            "name": name,
            "project": cluster.project,
            "auto_create_subnetworks": False,
            "routing_mode": "REGIONAL",
            "mtu": _mtu(config),
        },
        subnetwork=_subnetwork(config, placed),
        router={"name": name, "network": name, **placed},
        nat=_nat(name, placed),
    )


def _mtu(config: StackConfig) -> int:
    shapes = [shape for tpu in config.slices for shape in tpu.shapes]
    return JUMBO_MTU if any(shape.multi_host for shape in shapes) else DEFAULT_MTU


def _subnetwork(config: StackConfig, placed: Args) -> Args:
    cluster = names.google_cluster(config)
    made = ranges(cluster.network, config.slices, cluster.cpu_nodes)
    return {
        "name": names.stack_name(config),
        "network": names.stack_name(config),
        **placed,
        "ip_cidr_range": made.nodes,
        "secondary_ip_ranges": [
            {"range_name": PODS, "ip_cidr_range": made.pods},
            {"range_name": SERVICES, "ip_cidr_range": made.services},
        ],
        # Buckets, images and logs are reached without leaving Google's network.
        "private_ip_google_access": True,
    }


def _nat(name: str, placed: Args) -> Args:
    least, most = _NAT_PORTS
    return {
        "name": name,
        "router": name,
        **placed,
        "nat_ip_allocate_option": "AUTO_ONLY",
        "source_subnetwork_ip_ranges_to_nat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
        "enable_dynamic_port_allocation": True,
        # Google refuses the two together.
        "enable_endpoint_independent_mapping": False,
        "min_ports_per_vm": least,
        "max_ports_per_vm": most,
        "log_config": {"enable": True, "filter": "ERRORS_ONLY"},
    }


class Network(pulumi.ComponentResource):
    """A VPC with one subnetwork, and NAT for nodes without addresses of their own."""

    def __init__(
        self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("raytpu:gke:Network", name, None, opts)

        def after(*earlier: pulumi.Resource) -> pulumi.ResourceOptions:
            return pulumi.ResourceOptions(parent=self, depends_on=[*earlier])

        network = gcp.compute.Network(f"{name}-vpc", **args.network, opts=after())
        gcp.compute.Subnetwork(f"{name}-subnetwork", **args.subnetwork, opts=after(network))
        router = gcp.compute.Router(f"{name}-router", **args.router, opts=after(network))
        gcp.compute.RouterNat(f"{name}-nat", **args.nat, opts=after(router))
        self.register_outputs({})
