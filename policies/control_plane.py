"""Security: from where the control plane of a cluster can be reached."""

import ipaddress
from collections.abc import Iterator

from policies.pools import CLUSTER
from policies.rule import LENIENT_IN_DEV, Context, kinds, rule
from policies.view import Fault, Item

_FIX = "name your networks, or close the address and come in by the DNS name"


@rule(
    "security-control-plane",
    "The control plane's address answers to named networks only.",
    why="A leaked credential, or a fault of the API server, is then open to the whole internet.",
    levels=LENIENT_IN_DEV,
    over=kinds(CLUSTER),
)
def _control_plane(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["controlPlaneEndpointsConfig"]["ipEndpointsConfig"]["enabled"]
    if at.flag is False or item.root["privateClusterConfig"]["enablePrivateEndpoint"].flag:
        return
    networks = item.root["masterAuthorizedNetworksConfig"]
    if not networks:
        yield networks.fault("left out, so the control plane's address answers to everybody", _FIX)
    for block in networks["cidrBlocks"]:
        cidr = block["cidrBlock"]
        if _is_everybody(cidr.text):
            yield cidr.fault(f"{cidr.text} is everybody", _FIX)


def _is_everybody(cidr: str | None) -> bool:
    try:
        return cidr is not None and ipaddress.ip_network(cidr, strict=False).prefixlen == 0
    except ValueError:
        return False
