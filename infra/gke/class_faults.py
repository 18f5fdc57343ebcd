"""What is wrong with a ComputeClass and the worker groups that select it, whoever wrote them.

GKE accepts nearly all of this, and the pods then wait for ever or land where nobody wants them.
Sources: as of compute_class; KubeRay's TPU webhook (ef658db) for what a group must select.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from infra.errors import Problem, quote
from infra.gke.compute_class import CLASS_LABEL
from infra.tpu import topology as topologies
from infra.tpu.capacity import FLEX_START_RUN
from infra.tpu.catalog import (
    ACCELERATOR_LABEL,
    CHIP_RESOURCE,
    GENERATIONS,
    MACHINES,
    TOPOLOGY_LABEL,
    Machine,
)

Manifest = dict[str, Any]

REFUSED_BESIDE_CLASS = frozenset(
    {
        "cloud.google.com/machine-family",
        "cloud.google.com/machine-type",
        "cloud.google.com/gke-spot",
        "cloud.google.com/gke-accelerator",
        "cloud.google.com/gke-gpu-driver-version",
        "cloud.google.com/reservation-name",
        "cloud.google.com/reservation-project",
        "cloud.google.com/reservation-affinity",
        "cloud.google.com/gke-ephemeral-storage-local-ssd",
        "cloud.google.com/gke-boot-disk",
        "cloud.google.com/gke-boot-disk-size",
        "cloud.google.com/gke-node-pool-group-name",
        "cloud.google.com/gke-workload-type",
        "node.kubernetes.io/instance-type",
    }
)
NODE_POOL_LABEL = "cloud.google.com/gke-nodepool"

_BY_WORKLOAD_POLICY = {
    generation.gke_accelerator for generation in GENERATIONS.values() if generation.workload_policy
}


def faults(manifest: Manifest, groups: Sequence[Manifest]) -> list[Problem]:
    """Of the class, and of those of `groups` (worker groups of Ray clusters) that select it."""
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    mine = [group for group in groups if _selector(group).get(CLASS_LABEL) == name]
    found = [*_spec(spec)]
    for index, priority in enumerate(spec.get("priorities", [])):
        where = f"spec.priorities[{index}]"
        found += [
            *_shape(where, priority),
            *_capacity(where, priority),
            *_place(where, priority, spec),
        ]
        if mine:
            found += _unused(where, priority, mine)
    return [*found, *(fault for group in groups for fault in _group(group))]


def _spec(spec: Manifest) -> Iterator[Problem]:
    where = "spec.whenUnsatisfiable"
    if (value := spec.get("whenUnsatisfiable")) != "DoNotScaleUp":
        what = "makes ordinary nodes on which no TPU pod starts, and is what some versions take"
        yield Problem.of(where, value, what, "write DoNotScaleUp")
    own = any("nodepools" in priority for priority in spec.get("priorities", []))
    if not own and not spec.get("nodePoolAutoCreation", {}).get("enabled"):
        yield Problem(
            "spec.nodePoolAutoCreation",
            "nothing makes nodes for this class",
            "write {enabled: true}, or name node pools",
        )


def _shape(where: str, priority: Manifest) -> Iterator[Problem]:
    tpu = priority.get("tpu")
    if tpu is None:
        return
    if missing := [part for part in ("type", "count", "topology") if part not in tpu]:
        what = f"leaves {' and '.join(missing)} to be guessed"
        yield Problem(f"{where}.tpu", what, "write type, count and topology")
        return
    machines = _machines(tpu["type"], tpu["topology"])
    if not machines:
        what = f"is no topology of {tpu['type']}"
        yield Problem.of(f"{where}.tpu.topology", tpu["topology"], what, "use one that GKE lists")
        return
    chips = [machine.chips for machine in machines]
    if tpu["count"] not in chips:
        total = topologies.chips(tpu["topology"])
        what = "is all chips of the slice" if tpu["count"] == total else "is no host's chips"
        right = " or ".join(str(one) for one in dict.fromkeys(chips))
        fix = f"write {right}: the chips of one host of {tpu['type']} {tpu['topology']}"
        yield Problem.of(f"{where}.tpu.count", tpu["count"], what, fix)


def _machines(accelerator: str, topology: str) -> list[Machine]:
    return [
        machine
        for machine in MACHINES.values()
        if GENERATIONS[machine.generation].gke_accelerator == accelerator
        and topologies.is_legal(machine, topology)
    ]


def _capacity(where: str, priority: Manifest) -> Iterator[Problem]:
    if "nodepools" in priority:
        return
    flex = priority.get("flexStart", {}).get("enabled", False)
    if "spot" not in priority:
        what = "is left out, and so matches spot nodes too"
        yield Problem(f"{where}.spot", what, "write true or false")
    if flex and priority.get("spot"):
        yield Problem(where, "asks for flex-start and spot at once", "make two priorities of it")
    affinity = priority.get("reservations", {}).get("affinity")
    if flex and affinity not in (None, "None"):
        what = "asks for flex-start and a reservation at once"
        yield Problem(where, what, "make two priorities of it")
    if affinity == "AnyBestEffort":
        what = "is not offered for TPUs"
        fix = "write Specific and name the reservation, or None"
        yield Problem.of(f"{where}.reservations.affinity", affinity, what, fix)
    run_s = priority.get("maxRunDurationSeconds")
    shortest, longest = (limit.total_seconds() for limit in FLEX_START_RUN)
    if flex and run_s is not None and not shortest <= run_s <= longest:
        fix = f"use {shortest:.0f} to {longest:.0f}"
        yield Problem.of(
            f"{where}.maxRunDurationSeconds", run_s, "is no run that flex-start offers", fix
        )
    yield from _reservations(f"{where}.reservations", priority.get("reservations", {}))


def _reservations(where: str, reservations: Manifest) -> Iterator[Problem]:
    entries = reservations.get("specific", [])
    if entries and reservations.get("affinity") != "Specific":
        what = "names reservations that this affinity does not take"
        yield Problem(where, what, "write affinity: Specific beside specific")
    for index, entry in enumerate(entries):
        place = f"{where}.specific[{index}]"
        if "affinity" in entry:
            what = "is no field of one reservation"
            yield Problem(f"{place}.affinity", what, f"write it one level up, in {where}")
        block = entry.get("reservationBlock", {}).get("name")
        if "name" not in entry or block == entry["name"]:
            yield Problem(
                f"{place}.reservationBlock.name" if block else place,
                "the reservation's own name belongs elsewhere" if block else "names no reservation",
                f"write it as {place}.name, and a block only if you mean one",
            )


def _place(where: str, priority: Manifest, spec: Manifest) -> Iterator[Problem]:
    default = spec.get("priorityDefaults", {}).get("location", {})
    zones = priority.get("location", default).get("zones", [])
    if zones and priority.get("reservations", {}).get("affinity") == "Specific":
        yield Problem(
            f"{where}.location.zones",
            "GKE takes none beside a specific reservation, not even by priorityDefaults",
            f"write them as {where}.reservations.specific[].zones",
        )
    tpu = priority.get("tpu", {})
    if not {"count", "topology"} <= tpu.keys() or not topologies.well_formed(tpu["topology"]):
        return
    multi_host = topologies.chips(tpu["topology"]) > tpu["count"]
    if multi_host and len(zones) > 1:
        what = f"{', '.join(zones)} cannot hold one slice of several hosts"
        yield Problem(f"{where}.location.zones", what, "make one priority of each zone")
    if (
        multi_host
        and tpu.get("type") in _BY_WORKLOAD_POLICY
        and "policyName" not in priority.get("placement", {})
    ):
        yield Problem(
            f"{where}.placement",
            f"{tpu['type']} hosts are held together by a workload policy, and none is named",
            "write placement.policyName on every priority",
        )


def _unused(where: str, priority: Manifest, groups: Sequence[Manifest]) -> Iterator[Problem]:
    tpu = priority.get("tpu")
    if tpu is None or not {"type", "count", "topology"} <= tpu.keys():
        return
    wanted = {_asks_for(group) for group in groups}
    offered = (tpu["type"], tpu["topology"], str(tpu["count"]))
    if offered not in wanted:
        others = " or ".join(" ".join(one) for one in sorted(wanted))
        what = f"offers {' '.join(offered)}, which no worker group of the class can use"
        yield Problem(f"{where}.tpu", what, f"offer {others}, or add a group for it")


def _group(group: Manifest) -> Iterator[Problem]:
    """A pod's own choice of nodes must leave the choice to its class."""
    where = f"group {quote(group['groupName'])}"
    selector = _selector(group)
    if CLASS_LABEL in selector:
        for label in sorted(selector.keys() & (REFUSED_BESIDE_CLASS | {NODE_POOL_LABEL})):
            what = f"selects {label} beside a compute class, which leaves it no other rung"
            yield Problem(where, what, "leave it out; the class decides")
    affinity = group["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", []):
        keys = [e["key"] for e in term.get("preference", {}).get("matchExpressions", [])]
        if CLASS_LABEL in keys:
            what = "only prefers its compute class, so GKE makes no nodes for it"
            yield Problem(where, what, f"select {CLASS_LABEL} in nodeSelector")
    yield from _hosts(where, group)


def _hosts(where: str, group: Manifest) -> Iterator[Problem]:
    """As the webhook counts them, which refuses the Ray cluster otherwise."""
    kind, topology, count = _asks_for(group)
    if not kind or not count.isdigit() or not topologies.well_formed(topology):
        return
    right = max(math.prod(topologies.dimensions(topology)) // int(count), 1)
    if group.get("numOfHosts", 1) != right:
        what = f"numOfHosts is {group.get('numOfHosts', 1)}, but {topology} of {count} chips a host"
        yield Problem(where, f"{what} takes {right}", f"write {right}")


def _selector(group: Manifest) -> dict[str, str]:
    return group["template"]["spec"].get("nodeSelector", {})


def _asks_for(group: Manifest) -> tuple[str, str, str]:
    selector = _selector(group)
    container = group["template"]["spec"]["containers"][0]
    chips = container.get("resources", {}).get("limits", {}).get(CHIP_RESOURCE, "")
    return selector.get(ACCELERATOR_LABEL, ""), selector.get(TOPOLOGY_LABEL, ""), str(chips)
