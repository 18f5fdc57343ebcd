"""The hosts of a slice by their numbers, on which libtpu relies. Standard library only."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.contract import SliceContract


@dataclass(frozen=True)
class Host:
    """A host of a slice as its own process finds it."""

    slice_name: str
    worker_id: int | None
    """TPU_WORKER_ID, by which libtpu numbers the hosts of a slice. None if it is not set."""
    hostname: str
    address: str

    def __str__(self) -> str:
        number = "without TPU_WORKER_ID" if self.worker_id is None else str(self.worker_id)
        return f"host {number} of {self.slice_name} ({self.hostname}, {self.address})"


def nodes_of(
    contract: SliceContract, nodes: Iterable[Mapping[str, Any]]
) -> dict[str, list[Mapping[str, Any]]]:
    """The living nodes of slices of this shape, of ray.nodes(), by the slice's name."""
    slices: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        labels = node["Labels"]
        if node["Alive"] and labels.get("ray.io/tpu-pod-type") == contract.pod_type:
            slices.setdefault(of_node(node).slice_name, []).append(node)
    return slices


def of_nodes(contract: SliceContract, nodes: Iterable[Mapping[str, Any]]) -> dict[str, list[Host]]:
    """The same as hosts."""
    return {name: [*map(of_node, found)] for name, found in nodes_of(contract, nodes).items()}


def of_node(node: Mapping[str, Any]) -> Host:
    labels = node["Labels"]
    number = labels.get("ray.io/tpu-worker-id", "")
    return Host(
        slice_name=labels.get("ray.io/tpu-slice-name", node["NodeID"]),
        worker_id=int(number) if number.isdecimal() else None,
        hostname=node["NodeManagerHostname"],
        address=node["NodeManagerAddress"],
    )


def number_faults(contract: SliceContract, hosts: Sequence[Host]) -> list[str]:
    """What is wrong with the numbers of the hosts of one slice.

    libtpu starts when hosts 0 to the last have found each other: with one number twice it waits
    for ever (seen on one start in five of 64 hosts, GoogleCloudPlatform/ai-on-gke 858).
    """
    if not contract.multi_host:
        return []
    fix = "delete the pods of that slice, so that all are numbered anew"
    counts = Counter(host.worker_id for host in hosts)
    twice = [number for number, count in counts.items() if count > 1 and number is not None]
    faults = [
        f"TPU_WORKER_ID {number}: is that of {' and of '.join(map(str, _numbered(hosts, number)))}"
        for number in sorted(twice)
    ]
    faults += [f"TPU_WORKER_ID: {host}" for host in _numbered(hosts, None)]
    missing = sorted(set(range(contract.hosts)) - counts.keys())
    if missing:
        last = contract.hosts - 1
        told_missing = ", ".join(map(str, missing))
        faults.append(f"TPU_WORKER_ID {told_missing}: is that of no host of 0 to {last}")
    beyond = sorted(n for n in counts if n is not None and n >= contract.hosts)
    faults += [f"TPU_WORKER_ID {n}: is beyond the last of {contract.hosts} hosts" for n in beyond]
    return [f"slice {hosts[0].slice_name}: {fault}; {fix}" for fault in faults]


def _numbered(hosts: Sequence[Host], number: int | None) -> list[Host]:
    return [host for host in hosts if host.worker_id == number]
