"""Tells Ray that this host will be taken away, and waits while what runs on it saves and leaves.

    RAY_ADDRESS=HOST:PORT python -m workloads.drain --limit-s SECONDS

Kubernetes runs it in a pod before it ends the pod's processes (`preStop`), for then it would be too
late: Ray's own end at once. Ray shuts a draining node down as soon as nothing runs on it.
"""

import argparse
import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from workloads import entrypoint
from workloads.errors import UserError
from workloads.log import say

CONNECT_TIMEOUT_S = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 once the node is gone, 1 after a line if it is not within the limit."""
    parser = argparse.ArgumentParser(prog="workloads.drain", description=__doc__)
    parser.add_argument("--limit-s", type=float, required=True, help="until the host is taken")
    parser.add_argument("--node-id", help="by default the only node at this host's address")
    arguments = parser.parse_args(argv)
    return entrypoint.run(lambda: _drain(arguments.limit_s, arguments.node_id))


def _drain(limit_s: float, node_id: str | None) -> None:
    # What `ray drain-node` calls. That command knows no node but by joining the cluster first,
    # which takes seconds that a host on spot capacity does not have.
    from ray.core.generated.autoscaler_pb2 import (
        DRAIN_NODE_REASON_PREEMPTION,  # pyright: ignore[reportAttributeAccessIssue] # generated
    )

    deadline_s = time.time() + limit_s
    gcs = _connect(os.environ.get("RAY_ADDRESS", ""))
    chosen = node_id or _node_of_this_host(gcs)
    reason, message = DRAIN_NODE_REASON_PREEMPTION, "the host will be taken away"
    accepted, why = gcs.drain_node(chosen, reason, message, int(deadline_s * 1000))
    if not accepted:
        raise UserError(f"node {chosen}: Ray refuses to drain it ({why}); its work ends unsaved")
    say(f"node {chosen} is draining; what runs on it has {limit_s:.0f} s to save")
    while chosen in _alive(gcs):
        if time.time() > deadline_s:
            raise UserError(
                f"node {chosen}: still busy after {limit_s:.0f} s; its work ends unsaved"
            )
        time.sleep(0.5)


def _connect(address: str) -> Any:
    from ray._raylet import GcsClient  # pyright: ignore[reportAttributeAccessIssue] # not Python

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        raise UserError(
            f"RAY_ADDRESS: no Ray cluster answers at {address!r} ({error}); set it to HOST:PORT"
        ) from None
    return GcsClient(address=address)


def _node_of_this_host(gcs: Any) -> str:
    from ray.util import get_node_ip_address

    here = get_node_ip_address()
    found = [node_id for node_id, address in _alive(gcs).items() if address == here]
    if len(found) != 1:
        raise UserError(f"{here}: {len(found)} living nodes of Ray here, not one; give --node-id")
    return found[0]


def _alive(gcs: Any) -> dict[str, str]:
    """Ids of living nodes: their addresses."""
    from ray.core.generated.gcs_pb2 import (
        GcsNodeInfo,  # pyright: ignore[reportAttributeAccessIssue] # generated
    )

    return {
        node_id.hex(): node.node_manager_address
        for node_id, node in gcs.get_all_node_info().items()
        if node.state == GcsNodeInfo.ALIVE
    }


if __name__ == "__main__":
    sys.exit(main())
