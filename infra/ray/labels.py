"""Ray's labels of a worker group, by which application code chooses hardware.

The platform team defines them with the slices; a developer selects with `label_selector` and
`fallback_strategy` alone. KubeRay makes Kubernetes labels of the pods of them too.
"""

from infra.config import ExistingCluster, LocalCluster, StackConfig
from infra.tpu.capacity import Reservation
from infra.tpu.slice import TpuSlice

MIXED = "mixed"
"""Capacity of a slice that comes in one of several ways: nothing in the pod tells in which."""

_MARKET: dict[str, str] = {"spot": "spot", "on-demand": "on-demand", "reservation": "on-demand"}
"""Ray's own two words. Flex-start and queued capacity are neither."""


def ray_labels(config: StackConfig, tpu: TpuSlice, compute_class: str | None) -> dict[str, str]:
    """Ray itself adds type, topology and pod type of each host under ray.io/."""
    labels = {
        "raytpu/slice": tpu.name,
        "raytpu/generation": tpu.generation.name,
        "raytpu/topology": tpu.topology,
        "raytpu/pod-type": tpu.pod_type,
        "raytpu/capacity": capacity(tpu),
    }
    if compute_class:
        labels["raytpu/compute-class"] = compute_class
    names = {rung.terms.name for rung in tpu.capacity if isinstance(rung.terms, Reservation)}
    if len(names) == 1:
        labels["raytpu/reservation"] = names.pop()
    if market := _MARKET.get(capacity(tpu)):
        labels["ray.io/market-type"] = market
    return labels | _place(config, tpu)


def capacity(tpu: TpuSlice) -> str:
    kinds = {rung.kind for rung in tpu.capacity}
    return kinds.pop() if len(kinds) == 1 else MIXED


def _place(config: StackConfig, tpu: TpuSlice) -> dict[str, str]:
    """As far as it is known before the nodes are: nobody tells Ray where its pods run."""
    cluster = config.cluster
    if isinstance(cluster, LocalCluster):
        return {}
    choices = [{rung.terms.zone} if rung.terms.zone else {*cluster.zones} for rung in tpu.capacity]
    zones = set[str]().union(*choices)
    place: dict[str, str] = {}
    if len(zones) == 1 and all(choices):
        place["ray.io/availability-zone"] = zones.pop()
    if not isinstance(cluster, ExistingCluster):
        place["ray.io/availability-region"] = cluster.region
    return place
