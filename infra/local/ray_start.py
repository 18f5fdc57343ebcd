"""Starts one Ray node on loopback and leaves it running. A process of its own; nothing imports it.

What `ray start` does, with three differences that its options do not allow (Ray 2.60):

- It replaces a node address of 127.0.0.1 by the machine's outer address, and then GCS, raylets and
  agents listen on every interface, without authentication. Given to the node directly, the address
  stays; the variable (Ray's own, meant for a Mac) makes the node's children do the same.
- It always starts a Ray Client server and an autoscaler's monitor: nobody asks for them here.
- It imports Ray Serve and pandas: 2.5 s of processor time a node.

Usage: python -m infra.local.ray_start JSON, with the keyword arguments of Ray's `RayParams`, and
"head": true for the node that carries GCS and dashboard. Prints the GCS address last.
"""

import json
import os
import sys
from typing import cast

from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._private.utils import write_ray_address

LOOPBACK = "127.0.0.1"


def main() -> None:
    options = json.loads(sys.argv[1])
    head = options.pop("head")
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    params = RayParams(
        node_ip_address=LOOPBACK,
        node_name=LOOPBACK,
        dashboard_host=LOOPBACK,
        dashboard_agent_listen_port=0,
        # Of the head, where drivers are: one for each of many hosts would take their cores.
        include_log_monitor=head,
        no_monitor=True,
        **options,
    )
    node = Node(params, head=head, shutdown_at_exit=False, spawn_reaper=False, connect_only=False)
    address = cast("str", node.gcs_address)  # pyright: ignore[reportUnknownMemberType] # untyped
    # As `ray start` does: without it a job's supervisor looks for any cluster of this machine.
    write_ray_address(address, options["temp_dir"])
    sys.stdout.write(f"{address}\n")


if __name__ == "__main__":
    main()
