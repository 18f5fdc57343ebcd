"""Starts Ray nodes on this machine: a head, and hosts that look to Ray as GKE's TPU hosts do."""

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import LocalError
from infra.local import processes
from workloads.contract import SliceContract

START_TIMEOUT_S = 120.0
HOST_CPUS = 2
"""Ray's CPU slots of a simulated host: one for a trainer or replica, one for tasks beside it."""
HOST_OBJECT_STORE_MIB = 128
HEAD_OBJECT_STORE_MIB = 512

# Ray gives a raylet 30 s to register (fixed in ray/_private/node.py). Started all at once, many
# hosts run into it, and so do a few on a busy machine.
_STARTING = threading.BoundedSemaphore(os.cpu_count() or 1)
_ATTEMPTS = 3

_LIBTPU = Path(__file__).parent / "simulated"

# Set on the caller's side for other clusters, accelerators or programs: not for these nodes.
_FOREIGN = ("RAY_", "TPU_", "JAX_", "XLA_", "LIBTPU_", "MEGASCALE_", "PULUMI_", "PYTHONPATH")


@dataclass(frozen=True)
class NodePaths:
    """Where one node keeps its files."""

    temp_dir: Path
    """Ray's sockets and session. Short: a socket's path has at most 107 bytes."""
    log: Path
    """What `ray start` printed."""


def host_environment(tpu: SliceContract, worker_id: int, slice_name: str) -> dict[str, str]:
    """The variables of one TPU host.

    The first block is what GKE's TPU webhook and KubeRay set (kuberay-tpu-webhook, 2026-05); Ray
    derives its labels and head resource from it by its own code, as on GKE. The second block makes
    it a simulation: as many CPU devices as JAX would see, and the places of the chips in the slice.
    """
    hostnames = {"TPU_WORKER_HOSTNAMES": ",".join(["127.0.0.1"] * tpu.hosts)}
    return {
        "RAY_NODE_TYPE_NAME": tpu.name,
        "TPU_NAME": slice_name,
        "TPU_WORKER_ID": str(worker_id),
        "TPU_ACCELERATOR_TYPE": tpu.pod_type,
        "TPU_TOPOLOGY": tpu.topology,
        **(hostnames if tpu.multi_host else {}),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={tpu.devices_per_host}",
        "PYTHONPATH": str(_LIBTPU),
    }


def start_head(mark: str, paths: NodePaths, *, cpus: int, dashboard_port: int) -> str:
    """Starts GCS, dashboard and the head's raylet; the GCS address, "127.0.0.1:port"."""
    options = {
        "head": True,
        "gcs_server_port": 0,
        "include_dashboard": True,
        "dashboard_port": dashboard_port,
        "num_cpus": cpus,
        "object_store_memory": HEAD_OBJECT_STORE_MIB << 20,
    }
    # The head's metrics alone are collected: a run's are there, and on each host it would cost the
    # agent a third of its time.
    variables = {"JAX_PLATFORMS": "cpu", "RAY_enable_metrics_collection": "1"}
    _ray_start(mark, paths, options, variables)
    return paths.log.read_text().splitlines()[-1]


def start_host(
    mark: str, paths: NodePaths, *, address: str, tpu_chips: int, environment: Mapping[str, str]
) -> None:
    """Joins one simulated TPU host to the cluster at `address`."""
    options = {
        "head": False,
        "gcs_address": address,
        "num_cpus": HOST_CPUS,
        "object_store_memory": HOST_OBJECT_STORE_MIB << 20,
        "resources": {"TPU": tpu_chips},  # as KubeRay does from google.com/tpu
    }
    variables = {**environment, "RAY_enable_metrics_collection": "0"}
    _ray_start(mark, paths, options, variables)


def raylet_pid(mark: str) -> int:
    """Raises LocalError when the node has no living raylet."""
    for process in processes.find(mark):
        if process.name() == "raylet":
            return process.pid
    raise LocalError(f"{mark}: its raylet is gone; run `pulumi refresh`, then `pulumi up`")


def _ray_start(
    mark: str, paths: NodePaths, options: Mapping[str, Any], environment: Mapping[str, str]
) -> None:
    paths.temp_dir.mkdir(parents=True, exist_ok=True)
    arguments = json.dumps({"temp_dir": str(paths.temp_dir), **options})
    with _STARTING:
        for attempt in range(1, _ATTEMPTS + 1):
            processes.end(mark)  # of an interrupted run, or of the last attempt
            try:
                processes.run(
                    mark,
                    [sys.executable, "-m", "infra.local.ray_start", arguments],
                    env={**_base_environment(), **environment},
                    log=paths.log,
                    timeout_s=START_TIMEOUT_S,
                )
            except LocalError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return


def _base_environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
    # A worker is started when a task wants it: six nodes' idle spares cost minutes on 2 cores.
    return {
        **kept,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_worker_prestart": "0",
        # Ray makes workers yield to whatever else runs. Here that is Ray's own bookkeeping, on the
        # same cores, and hosts of one program wait for the one that yields.
        "RAY_worker_niceness": "0",
        # Said, not left to Ray: it turns tokens on where an earlier cluster of the user left one.
        "RAY_AUTH_MODE": "disabled",
    }
