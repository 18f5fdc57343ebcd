"""What a container finds that asked for chips: GKE's device plugin's variables, and the stand-in.

There are no chips here: JAX is told to see as many devices on the CPU as on such a host.
"""

from collections.abc import Mapping
from typing import Any

from infra.tpu.catalog import CHIP_RESOURCE, GENERATIONS, MACHINES, TOPOLOGY_LABEL
from infra.tpu.slice import TpuSlice

Manifest = dict[str, Any]

MACHINE_LABEL = "node.kubernetes.io/instance-type"
DEVICES_FLAG = "--xla_force_host_platform_device_count"
DIMENSIONS = 3


def chips_of(container: Manifest) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(CHIP_RESOURCE, 0))


def plugin_variables(container: Manifest, node_labels: Mapping[str, str]) -> dict[str, str]:
    """As far as Ray and JAX read them. The container's own variables win over these."""
    if not chips_of(container):
        return {}
    tpu = _slice(node_labels)
    bounds = [*tpu.machine.host_topology.split("x"), "1", "1"][:DIMENSIONS]
    alone = {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
    return {
        "TPU_ACCELERATOR_TYPE": tpu.pod_type,
        "TPU_TOPOLOGY": tpu.topology,
        "TPU_CHIPS_PER_HOST_BOUNDS": ",".join(bounds),
        "TPU_SKIP_MDS_QUERY": "true",  # there is no metadata server
        **({} if tpu.multi_host else alone),
    }


def stand_in_variables(
    container: Manifest, node_labels: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, str]:
    """These win over the container's own."""
    chips = chips_of(container)
    if not chips:
        return {}
    devices = chips * _slice(node_labels).generation.devices_per_chip
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{own.get('XLA_FLAGS', '')} {DEVICES_FLAG}={devices}".strip(),
    }


def _slice(node_labels: Mapping[str, str]) -> TpuSlice:
    """That the node is a host of."""
    machine = MACHINES[node_labels[MACHINE_LABEL]]
    return TpuSlice(
        name="host",
        count=1,
        machine=machine,
        generation=GENERATIONS[machine.generation],
        topology=node_labels[TOPOLOGY_LABEL],
    )
