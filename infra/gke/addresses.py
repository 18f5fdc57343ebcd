"""Address ranges of the cluster's own network, as large as the declared slices need.

Each node takes one address of the nodes' range, and of the pods' range a block that grows with the
pods it may hold: GKE's "Create a VPC-native cluster" gives a /24 for 110 pods and a /26 for 32.
Neither range of pods nor that of services can be changed later without a new cluster, so a range
is at least what GKE itself would take: more slices then need no other network.
"""

import ipaddress
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import combinations
from typing import Annotated

from pydantic import AfterValidator

from infra.errors import Problem
from infra.names import fault
from infra.tpu.slice import TpuSlice
from workloads.settings import Settings

TPU_PODS_PER_NODE = 32
"""A host runs one pod of a slice, and about 15 of the system's. Google's own compute classes for
TPUs (accelerated-platforms, 9320f3b) allow 32; xpk's 15 leaves no room beside the add-ons here."""
CPU_PODS_PER_NODE = 110
"""GKE's default."""
SURGE_NODES = 1
"""Nodes that an upgrade may add to a pool."""

_FEWEST_SERVICES = 16
"""GKE takes no smaller range of services than a /28."""
_TAKEN_BY_GOOGLE = 4
"""Addresses of a subnetwork's first range, whatever its size."""

# Each at its least, and the most that it can grow to without meeting the next.
_NODES = (IPv4Network("10.0.0.0/20"), IPv4Network("10.0.0.0/12"))
_SERVICES = IPv4Network("10.16.0.0/20")
_PODS = (IPv4Network("10.128.0.0/14"), IPv4Network("10.128.0.0/9"))

_NO_NETWORK = (
    IPv4Network("0.0.0.0/8"),  # this host
    IPv4Network("127.0.0.0/8"),  # loopback
    IPv4Network("169.254.0.0/16"),  # link-local, the metadata server's among them
    IPv4Network("224.0.0.0/4"),  # multicast
)


def _checked_cidr(text: str) -> str:
    try:
        interface = ipaddress.IPv4Interface(text)
    except ValueError:
        raise fault("is no range of IPv4 addresses", "write one such as 10.0.0.0/20") from None
    if "/" not in text or str(interface.network) != text:
        raise fault("does not begin a range of its size", f"write {interface.network}")
    return text


Cidr = Annotated[str, AfterValidator(_checked_cidr)]


class NetworkSettings(Settings):
    """Address ranges of the cluster's own network; by default as large as the slices need."""

    nodes: Cidr | None = None
    pods: Cidr | None = None
    services: Cidr | None = None


@dataclass(frozen=True)
class Ranges:
    nodes: str
    pods: str
    services: str


@dataclass(frozen=True)
class Needs:
    """The most nodes that can exist at once, and the addresses they and their pods take."""

    cpu_nodes: int
    tpu_nodes: int

    @property
    def nodes(self) -> int:
        return self.cpu_nodes + self.tpu_nodes + _TAKEN_BY_GOOGLE

    @property
    def pods(self) -> int:
        cpu_blocks = self.cpu_nodes * pod_block(CPU_PODS_PER_NODE)
        return cpu_blocks + self.tpu_nodes * pod_block(TPU_PODS_PER_NODE)


def pod_block(pods: int) -> int:
    """Addresses that GKE sets aside for a node of so many pods: twice as many, in a power of 2."""
    return 2 ** math.ceil(math.log2(2 * pods))


def needs(slices: Iterable[TpuSlice], cpu_nodes: int) -> Needs:
    """Of all shapes, since hosts of two may exist while one takes the place of the other."""
    shapes = [shape for tpu in slices for shape in tpu.shapes]
    hosts = sum(shape.workers + SURGE_NODES * len(shape.pools) for shape in shapes)
    return Needs(cpu_nodes + SURGE_NODES, hosts)


def ranges(network: NetworkSettings, slices: Iterable[TpuSlice], cpu_nodes: int) -> Ranges:
    """As declared, and by default.

    Args:
        network: What the user declares.
        slices: Of the stack.
        cpu_nodes: The most nodes without TPU.
    """
    needed = needs(slices, cpu_nodes)
    return Ranges(
        nodes=network.nodes or str(_grown(*_NODES, needed.nodes)),
        pods=network.pods or str(_grown(*_PODS, needed.pods)),
        services=network.services or str(_SERVICES),
    )


def faults(
    network: NetworkSettings, slices: Iterable[TpuSlice], cpu_nodes: int, where: str
) -> Iterator[Problem]:
    """Ranges that cannot hold what is declared, or that are not apart."""
    needed = needs(slices := [*slices], cpu_nodes)
    made = vars(ranges(network, slices, cpu_nodes))
    for role, wanted in {"nodes": needed.nodes, "pods": needed.pods}.items():
        size = IPv4Network(made[role]).num_addresses
        if size < wanted:
            way_out = f"use a /{_prefix(wanted)} or larger"
            yield Problem(
                f"{where}.{role}",
                f"{made[role]} has {size} addresses, and {needed.cpu_nodes} nodes without TPU and "
                f"{needed.tpu_nodes} with, those of an upgrade included, need {wanted}",
                f"{way_out}, or leave it out" if getattr(network, role) else way_out,
            )
    declared = network.model_dump(exclude_none=True)
    yield from _useless(declared, where)
    for pair in combinations(made, 2):
        if IPv4Network(made[pair[0]]).overlaps(IPv4Network(made[pair[1]])):
            one, other = sorted(pair, key=lambda role: role not in declared)
            yield Problem(
                f"{where}.{one}",
                f"{made[one]} overlaps {made[other]}, the range of {other}",
                "choose ranges that lie apart",
            )


def _useless(declared: dict[str, str], where: str) -> Iterator[Problem]:
    """Ranges that no network can have."""
    for role, text in declared.items():
        one = IPv4Network(text)
        if any(one.overlaps(never) for never in _NO_NETWORK):
            what = f"{text} has addresses that mean no machine of a network"
            yield Problem(f"{where}.{role}", what, "use one such as 10.0.0.0/20")
        if role == "services" and one.num_addresses < _FEWEST_SERVICES:
            what = f"{text} has {one.num_addresses} addresses, and GKE takes no fewer than 16"
            yield Problem(f"{where}.{role}", what, "use a /28 or larger")


def _prefix(addresses: int) -> int:
    return 32 - math.ceil(math.log2(addresses))


def _grown(least: IPv4Network, most: IPv4Network, addresses: int) -> IPv4Network:
    """The range from the first address of both that holds so many, if any does."""
    prefix = max(most.prefixlen, min(least.prefixlen, _prefix(addresses)))
    return IPv4Network((least.network_address, prefix))
