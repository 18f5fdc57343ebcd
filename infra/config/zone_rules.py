"""Whether slices are asked for where the cluster has nodes, and where Google has such TPUs.

What Google documents lags behind what it sells, so a zone that it does not name is remarked; it is
refused only where there is no other for certain.
"""

from collections.abc import Iterator

from infra.config.cluster import AutopilotCluster, GkeCluster, region
from infra.config.entries import Entries
from infra.errors import Problem, quote
from infra.tpu.capacity import Rung
from infra.tpu.catalog import Generation


def faults(entries: Entries) -> Iterator[Problem]:
    if isinstance(entries.cluster, GkeCluster | AutopilotCluster):
        yield from _outside_of_the_region(entries.cluster)
    if isinstance(entries.cluster, GkeCluster):
        yield from _pools_in_several_zones(entries, entries.cluster.zones)
    zones = entries.zones
    for where, _, rung in entries.rungs:
        zone = rung.terms.zone
        if zone and zones and zone not in zones:
            yield Problem(
                f"{where}.{rung.key}.zone",
                f"{quote(zone)} is no zone of the cluster",
                f"use {' or '.join(zones)}, or add it to raytpu:cluster.zones",
            )
    for where, generation, asked in _doubtful(entries):
        if generation.all_zones:
            what = f"{generation.name} does not exist in {' or '.join(asked)}"
            yield Problem(f"{where}.machine_type", what, f"use {' or '.join(generation.zones)}")


def remarks(entries: Entries) -> Iterator[Problem]:
    for where, generation, asked in _doubtful(entries):
        yield _unsure(f"{where}.machine_type", generation.name, asked, generation.zones)
    for where, shape, rung in entries.rungs:
        asked, known = _asked(rung, entries), shape.generation.flex_start_zones
        if rung.kind == "flex-start" and known and asked and not {*asked} & {*known}:
            what = f"flex-start of {shape.generation.name}"
            yield _unsure(f"{where}.flex_start", what, asked, known)


def _outside_of_the_region(cluster: GkeCluster | AutopilotCluster) -> Iterator[Problem]:
    for index, zone in enumerate(cluster.zones):
        where = f"raytpu:cluster.zones[{index}]"
        first = cluster.zones.index(zone)
        if region(zone) != region(cluster.location):
            what = f"{quote(zone)} is not in {region(cluster.location)}, where the cluster is"
            yield Problem(where, what, "use a zone of that region, or another location")
        if first != index:
            what = f"{quote(zone)} is also raytpu:cluster.zones[{first}]"
            yield Problem(where, what, "leave one of them out")


def _pools_in_several_zones(entries: Entries, zones: tuple[str, ...]) -> Iterator[Problem]:
    """GKE counts a pool's nodes by zone, and puts no slice of several hosts in two."""
    for where, shape, rung in entries.rungs:
        if shape.provision == "node_pools" and rung.terms.zone is None and len(zones) > 1:
            yield Problem(
                f"{where}.{rung.key}.zone",
                f"is missing, and a node pool of slices is in one zone of {', '.join(zones)}",
                f"add zone: {zones[0]}, or provision: compute_class",
            )


def _asked(rung: Rung, entries: Entries) -> tuple[str, ...]:
    return (rung.terms.zone,) if rung.terms.zone else entries.zones


def _doubtful(entries: Entries) -> Iterator[tuple[str, Generation, tuple[str, ...]]]:
    """Shapes of which Google documents none in any of the zones where they are asked for."""
    for where, shape in entries.shapes:
        known = {*shape.generation.zones}
        for asked in dict.fromkeys(_asked(rung, entries) for rung in shape.capacity):
            if asked and not known & {*asked}:
                yield where, shape.generation, asked


def _unsure(where: str, what: str, asked: tuple[str, ...], known: tuple[str, ...]) -> Problem:
    return Problem(
        where,
        f"{what} is documented for {', '.join(known)}, and not for {' or '.join(asked)}",
        "not checked: ask Google whether it is offered there",
    )
