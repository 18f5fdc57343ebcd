"""TPU node pools: whole slices, placed as GKE takes them, on capacity terms that go together."""

from collections.abc import Iterable, Iterator

from infra.errors import quote
from infra.gke.names import SLICE_LABEL
from infra.tpu import topology as topologies
from infra.tpu.catalog import GENERATIONS, MACHINES, REFUSED, Machine
from policies.pods import Pod, shape, slices, tpu_pods
from policies.rule import ADVISORY, MANDATORY, Context, rule
from policies.view import Fault, Item, Node

CLUSTER, POOL = "gcp.container.Cluster", "gcp.container.NodePool"
_PREFIXES = ("ct", "tpu")


def tpu_pools(item: Item) -> Iterable[Item]:
    if item.kind != POOL:
        return ()
    machine = item.root["nodeConfig"]["machineType"].text or ""
    return (item,) if machine in MACHINES or machine.startswith(_PREFIXES) else ()


def machine(item: Item) -> Machine | None:
    return MACHINES.get(item.root["nodeConfig"]["machineType"].text or "")


def topology(item: Item) -> Node:
    return item.root["placementPolicy"]["tpuTopology"]


def hosts(item: Item) -> int | None:
    """Of the slice that a pool is; None for a pool of single hosts."""
    made_of, form = machine(item), topology(item).text
    if made_of is None or form is None or not topologies.well_formed(form):
        return None
    count = topologies.chips(form.strip().lower()) // made_of.chips
    return count if count > 1 else None


@rule(
    "pools-shape",
    "A pool is of a TPU machine, and its topology is one of that machine's.",
    why="Another topology is refused once the cluster is there, or cannot be reserved by Ray.",
    levels=MANDATORY,
    over=tpu_pools,
    pains=("P01", "P04"),
)
def _shape(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["nodeConfig"]["machineType"]
    found = machine(item)
    if found is None:
        name = at.text or ""
        refused = REFUSED.get(name)
        fix = f"use {refused.use if refused else ' or '.join(MACHINES)}"
        yield at.fault(f"{quote(name)} is no machine for slices", fix)
        return
    form = topology(item)
    if form.text is not None and not topologies.is_legal(found, form.text):
        what, fix = topologies.refusal(found, form.text)
        yield form.fault(f"{quote(form.text)} {what}", fix)


@rule(
    "pools-placement",
    "Only a pool of several hosts is placed by topology, and in its generation's way.",
    why="GKE refuses a topology on a single-host pool; several hosts without one are no slice; and "
    "a compact tpu7x pool goes to ERROR.",
    levels=MANDATORY,
    over=tpu_pools,
    pains=("P03", "P04", "P06"),
)
def _placement(item: Item, _: Context) -> Iterator[Fault]:
    found, form = machine(item), topology(item)
    if found is None or form.text is None:
        return
    if hosts(item) is None:
        what = f"{form.text} is one {found.name}, and GKE refuses a topology for one host"
        yield form.fault(what, "leave out placementPolicy")
        return
    policy = item.root["placementPolicy"]
    if not GENERATIONS[found.generation].workload_policy:
        if policy["type"].text != "COMPACT":
            what = f"placementPolicy.type is {quote(policy['type'].text)} for {found.name}"
            yield policy["type"].fault(what, "write COMPACT")
        return
    if not policy["policyName"]:
        what = f"{found.generation} hosts are held together by a workload policy, and none is named"
        fix = f"make one with HIGH_THROUGHPUT and topology {form.text}, and name it as policyName"
        yield policy["policyName"].fault(what, fix)
    if policy["type"].text == "COMPACT":
        what = f"{found.generation} takes no COMPACT placement"
        yield policy["type"].fault(what, "write an empty type")


@rule(
    "pools-whole",
    "A pool of several hosts has exactly its slice's hosts, or none until they are asked for.",
    why="A slice is there as a whole or not at all: GKE judges the limits of a zone, and a total "
    "leaves those at 0.",
    levels=MANDATORY,
    over=tpu_pools,
    pains=("P07",),
)
def _whole(item: Item, _: Context) -> Iterator[Fault]:
    right = hosts(item)
    if right is None:
        return
    pool = item.root
    if len(pool["nodeLocations"]) > 1:
        zones = ", ".join(pool["nodeLocations"].texts())
        what = f"{zones} cannot hold one slice of several hosts"
        yield pool["nodeLocations"].fault(what, "name one zone")
    yield from _scaled(pool, right) if pool["autoscaling"] else _fixed(pool, right)


def _fixed(pool: Node, right: int) -> Iterator[Fault]:
    sizes = [pool[key] for key in ("nodeCount", "initialNodeCount")]
    for size in sizes:
        if size and size.number != right:
            yield size.fault(f"{size.number} of {right} hosts", f"write {right}")
    if not any(sizes):
        yield pool["initialNodeCount"].fault("no size is said", f"write {right}")


def _scaled(pool: Node, right: int) -> Iterator[Fault]:
    scaling = pool["autoscaling"]
    for key in ("totalMinNodeCount", "totalMaxNodeCount"):
        if scaling[key].number:
            what = f"{scaling[key].number} in total leaves the zone's limit at 0"
            yield scaling[key].fault(what, "write minNodeCount and maxNodeCount instead")
    for key, allowed in (("minNodeCount", {0, right}), ("maxNodeCount", {right})):
        if (scaling[key].number or 0) not in allowed:
            what = f"{scaling[key].number or 0} where the slice has {right} hosts"
            yield scaling[key].fault(what, f"write {' or '.join(map(str, sorted(allowed)))}")
    policy = scaling["locationPolicy"]
    if policy.text not in (None, "ANY"):
        yield policy.fault(f"{policy.text} cannot assemble a slice", "write ANY")


@rule(
    "pools-terms",
    "A pool's capacity terms go together, and its reservation is said.",
    why="GKE refuses most pairs late, and takes some for another thing: a reservation that is not "
    "named is not used, and the pool is on demand.",
    levels=MANDATORY,
    over=tpu_pools,
    pains=("P09", "P10"),
)
def _terms(item: Item, _: Context) -> Iterator[Fault]:
    node, pool = item.root["nodeConfig"], item.root
    spot = node["spot"]
    affinity = node["reservationAffinity"]
    kind = affinity["consumeReservationType"].text
    reserved = kind in ("SPECIFIC_RESERVATION", "ANY_RESERVATION")
    flex, queued = node["flexStart"], pool["queuedProvisioning"]["enabled"]
    waits = [name for name, on in (("flex-start", flex.flag), ("queued", queued.flag)) if on]
    if kind is None:
        fix = "write NO_RESERVATION, or SPECIFIC_RESERVATION with key and values"
        yield affinity.fault("whether it uses a reservation is not said", fix)
    if kind == "ANY_RESERVATION":
        yield affinity.fault("TPUs take no ANY_RESERVATION", "write SPECIFIC_RESERVATION")
    if kind == "SPECIFIC_RESERVATION" and not (affinity["key"] and len(affinity["values"])):
        fix = "write key compute.googleapis.com/reservation-name and the name in values"
        yield affinity.fault("names no reservation, so none is used", fix)
    if spot.flag and reserved:
        fix = "write spot false, or NO_RESERVATION; another rung is another pool"
        yield spot.fault("asks for spot and a reservation at once", fix)
    for name in waits:
        if spot.flag:
            fix = f"write spot false, or leave out {name}; another rung is another pool"
            yield spot.fault(f"asks for spot and {name} at once", fix)
        if reserved:
            fix = f"write NO_RESERVATION, or leave out {name}; another rung is another pool"
            yield affinity.fault(f"asks for {name} and a reservation at once", fix)
    if waits and pool["autoscaling"]["minNodeCount"].number:
        yield pool["autoscaling"]["minNodeCount"].fault(f"{waits[0]} starts at 0", "write 0")
    if flex.flag:
        yield from _flex(pool)


def _flex(pool: Node) -> Iterator[Fault]:
    repair = pool["management"]["autoRepair"]
    if repair.flag is not False:
        yield repair.fault("a flex-start host runs once and is not repaired", "write false")
    for key in ("nodeCount", "initialNodeCount"):
        if pool[key].number and not pool["autoscaling"]:
            yield pool[key].fault("flex-start takes no fixed size", "autoscale it from 0")


@rule(
    "pools-flex-queued",
    "Flex-start is asked for without a queue.",
    why="GKE has refused the pair on TPUs, and later shown it: it depends on the version.",
    levels=ADVISORY,
    over=tpu_pools,
    pains=("P09",),
)
def _flex_queued(item: Item, _: Context) -> Iterator[Fault]:
    queued = item.root["queuedProvisioning"]["enabled"]
    if item.root["nodeConfig"]["flexStart"].flag and queued.flag:
        what = "flex-start with queued provisioning is refused on TPUs by some versions of GKE"
        yield queued.fault(what, "leave out queuedProvisioning, or try it on your version")


@rule(
    "pools-groups",
    "A worker group that selects a declared slice finds pools of that shape, and enough of them.",
    why="Pods of another shape than their pools wait for ever.",
    levels=MANDATORY,
    over=tpu_pods,
    pains=("P01",),
)
def _groups(pod: Pod, context: Context) -> Iterator[Fault]:
    label = pod.selector[SLICE_LABEL]
    found = shape(pod)
    if label.text is None or found is None or not any(context.view.of(POOL)):
        return
    mine = [item for item in context.view.of(POOL) if slice_of(item) == label.text]
    fitting = [item for item in mine if fits(item, found)]
    if not fitting:
        offered = "; ".join(_described(item) for item in mine) or "no pool has the label"
        what = f"{label.text} is {' '.join(map(str, found))} here, but {offered}"
        yield label.fault(what, "give pools and group one shape")
        return
    if hosts(fitting[0]) is not None and slices(pod) > len(fitting):
        what = f"up to {slices(pod)} slices, and {len(fitting)} pools for them"
        yield label.fault(what, "give each slice of several hosts a pool")


def slice_of(item: Item) -> str | None:
    return item.root["nodeConfig"]["labels"][SLICE_LABEL].text


def fits(item: Item, wanted: tuple[str, str, int]) -> bool:
    found = machine(item)
    if found is None:
        return False
    form = topology(item).text or found.host_topology
    accelerator = GENERATIONS[found.generation].gke_accelerator
    return (accelerator, form.strip().lower(), found.chips) == wanted


def _described(item: Item) -> str:
    found = machine(item)
    form = topology(item).text or (found.host_topology if found else "?")
    return f"pool {item.name} is {found.name if found else '?'} {form}"
