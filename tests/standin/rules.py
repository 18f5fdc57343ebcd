"""What Google refuses of resources other than node pools, each looked at by itself."""

import ipaddress
import re
from collections.abc import Iterator

from tests.standin.api import Args
from tests.standin.wire import UNKNOWN, at

BUCKET_NAME = r"[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9]"
LABEL = r"[a-z][-_a-z0-9]{0,62}"
LABEL_VALUE = r"[-_a-z0-9]{0,63}"


def bucket_faults(args: Args) -> Iterator[str]:
    if not re.fullmatch(BUCKET_NAME, args["name"]):
        yield f"Invalid bucket name: {args['name']}"


def label_faults(labels: dict[str, str]) -> Iterator[str]:
    for key, value in labels.items():
        if not (re.fullmatch(LABEL, key) and re.fullmatch(LABEL_VALUE, value)):
            yield f"Invalid label {key}={value}"


def cluster_faults(args: Args) -> Iterator[str]:
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", args["name"]):
        yield f"Invalid cluster name {args['name']!r}"
    pool = at(args, "workloadIdentityConfig.workloadPool")
    if pool not in (None, UNKNOWN, f"{args.get('project')}.svc.id.goog"):
        yield f"Workload pool {pool} must be {args.get('project')}.svc.id.goog"
    channel = at(args, "releaseChannel.channel")
    if channel not in (None, "UNSPECIFIED", "RAPID", "REGULAR", "STABLE", "EXTENDED"):
        yield f"expected release_channel to be one of RAPID, REGULAR, STABLE, got {channel}"
    own = ("removeDefaultNodePool", "initialNodeCount", "nodeConfig", "enableShieldedNodes")
    if args.get("enableAutopilot"):
        yield from (f'"enable_autopilot": conflicts with {key}' for key in own if key in args)
    elif not args.get("initialNodeCount"):
        yield "Cluster.initial_node_count must be greater than zero"


def range_faults(args: Args) -> Iterator[str]:
    texts = [args["ipCidrRange"], *(r["ipCidrRange"] for r in args.get("secondaryIpRanges", []))]
    ranges = [ipaddress.ip_network(text) for text in texts]
    for index, one in enumerate(ranges):
        for other in ranges[index + 1 :]:
            if one.overlaps(other):
                yield f"IP ranges {one} and {other} overlap"
