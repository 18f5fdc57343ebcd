"""Cost: what a view shows, a month at its worst known price, against the budgets that hold for it.

Prices and the length of a month are those of `raytpu cost`, and so is what is counted. Here only
resources are known, not the declaration; what they do not tell is reported, never taken for free.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from infra.config.cluster import region
from infra.cost.estimate import HOURS_PER_MONTH
from infra.cost.prices import PUBLIC
from infra.gke.names import BUDGET, SLICE_LABEL
from infra.tpu import topology as topologies
from infra.tpu.catalog import GENERATIONS
from policies.pods import PROVISIONING_LABEL, RAY, SPOT_LABELS, Pod, shape, slices, tpu_pods
from policies.pools import CLUSTER, POOL, fits, machine, slice_of, tpu_pools
from policies.rule import MANDATORY, Context, rule
from policies.view import Fault, Item, MalformedError, Node, UnknownError, View

CLASS = "ComputeClass"
ZONE_LABEL = "topology.kubernetes.io/zone"
RESERVATION_LABEL = "cloud.google.com/reservation-name"
_MACHINE = re.compile(r"[a-z0-9]+-[a-z]+-\d{1,3}")


class Place(NamedTuple):
    """One of the ways in which a slice may come."""

    kind: str
    """Of capacity, as a stack file spells it."""
    zone: str | None


@dataclass(frozen=True)
class Cost:
    usd: float
    """Of a month, as far as it is known."""
    unpriced: tuple[str, ...] = ()
    """What is missing in it."""


class Budget(NamedTuple):
    usd: int
    key: str
    namespace: str | None
    """None: it bounds all of the view."""


def priced(item: Item) -> Iterable[Item]:
    return (item,) if item.kind in (CLUSTER, POOL) or tpu_pods(item) else ()


@rule(
    "hygiene-budget",
    "What a stack costs a month at its worst known price is within its budget.",
    why="A job that falls back to on-demand chips costs several times what it does on spot. A "
    f"team's budget is the annotation {BUDGET} of its namespace.",
    levels=MANDATORY,
    over=priced,
    limits=("max_usd_per_month",),
)
def _within(item: Item, context: Context) -> Iterator[Fault]:
    budgets = [one for one in _budgets(context) if _counts(one, item)]
    if not budgets:
        return
    costs = _costs(context.view)
    for budget in budgets:
        before = 0.0
        for one, cost in costs.items():
            if one is item:
                break
            before += cost.usd if _counts(budget, one) else 0
        total = before + costs[item].usd
        if before <= budget.usd < total:
            what = f"{total:,.0f} USD a month with this one, over the budget of {budget.usd:,}"
            yield item.root[_key(item)].fault(what, f"{_less(item)}, or raise {budget.key}")
    if costs[item].unpriced:
        first, *others = costs[item].unpriced
        raise UnknownError((), f"{first}, and {len(others)} more" if others else first)


def _key(item: Item) -> str:
    return {CLUSTER: "location", POOL: "autoscaling"}.get(item.kind, "spec")


def _less(item: Item) -> str:
    if item.kind in (CLUSTER, POOL):
        return "make it smaller (autoscaling, nodeCount)"
    return "write fewer replicas" + (" or a shorter deadline" if item.kind == "RayJob" else "")


def _budgets(context: Context) -> Iterator[Budget]:
    limit = context.settings.limits.max_usd_per_month
    if limit is not None:
        yield Budget(limit, "limits.max_usd_per_month", None)
    said = [
        (item, at.number)
        for item in context.view.of("Namespace")
        if (at := item.root["metadata"]["annotations"][BUDGET])
    ]
    for item, usd in said:
        if usd is not None:
            of = None if len(said) == 1 else item.name
            yield Budget(usd, f"the budget of namespace {item.name} ({BUDGET})", of)


def _counts(budget: Budget, item: Item) -> bool:
    return budget.namespace is None or item.namespace == budget.namespace


@lru_cache(1)
def _costs(view: View) -> dict[Item, Cost]:
    return {one: _cost(one, view) for item in view.items for one in _subjects(item)}


def _subjects(item: Item) -> Iterable[Item]:
    """What cannot be read is a finding of its own, of the rule that judges the item."""
    try:
        return priced(item)
    except (UnknownError, MalformedError):
        return ()


def _cost(item: Item, view: View) -> Cost:
    try:
        if item.kind == CLUSTER:
            return _cluster(item)
        return _pool(item, view) if item.kind == POOL else _pods(item, view)
    except UnknownError as error:
        return Cost(0, (f"its price: {error}",))
    except MalformedError:
        return Cost(0, ("its price",))


def _cluster(item: Item) -> Cost:
    fee = PUBLIC.cluster()
    rest = ("the price of Autopilot's pods",) if item.root["enableAutopilot"].flag else ()
    if fee is None:
        return Cost(0, ("the price of GKE's management", *rest))
    return Cost(HOURS_PER_MONTH * fee.usd_per_hour, rest)


def _pool(item: Item, view: View) -> Cost:
    if not tpu_pools(item):
        return _machines(item)
    found = machine(item)
    if not _kept(item):
        return Cost(0)  # it is counted with the pods that make it grow
    if found is None:
        return Cost(0, ("the price of its machine type",))
    chips = _most_nodes(item) * found.chips
    places = (Place(_terms_of(item), zone) for zone in _zones_of(item, view))
    return _worst(found.generation, places, chips * HOURS_PER_MONTH)


def _machines(item: Item) -> Cost:
    node, place = item.root["nodeConfig"], item.root["location"].text
    zones = item.root["nodeLocations"].texts()
    name = node["machineType"].text or ""
    where = region(place or (zones[0] if zones else ""))
    price = PUBLIC.machine(name, where) if _MACHINE.fullmatch(name) else None
    if price is None or len(node["guestAccelerators"]):
        return Cost(
            0, (f"the price of {name or 'the default machine'} in {where or 'its region'}",)
        )
    return Cost(_most_nodes(item) * HOURS_PER_MONTH * price.usd_per_hour)


def _most_nodes(item: Item) -> int:
    pool = item.root
    zones = max(len(pool["nodeLocations"]), 1)
    scaling = pool["autoscaling"]
    if (total := scaling["totalMaxNodeCount"].number) is not None:
        return total
    fixed = pool["nodeCount"].number or pool["initialNodeCount"].number or 0
    return zones * ((scaling["maxNodeCount"].number or 0) if scaling else fixed)


def _kept(pool: Item) -> bool:
    """Whether its nodes are paid for when nothing runs on them."""
    scaling = pool.root["autoscaling"]
    return not scaling or bool(
        scaling["minNodeCount"].number or scaling["totalMinNodeCount"].number
    )


def _terms_of(pool: Item) -> str:
    node = pool.root["nodeConfig"]
    if node["spot"].flag:
        return "spot"
    if node["flexStart"].flag:
        return "flex_start"
    if pool.root["queuedProvisioning"]["enabled"].flag:
        return "queued"
    kind = node["reservationAffinity"]["consumeReservationType"].text
    return "reservation" if kind == "SPECIFIC_RESERVATION" else "on_demand"


def _zones_of(item: Item, view: View) -> list[str | None]:
    """Its own, or else the cluster's, if there is one cluster."""
    own = item.root["nodeLocations"].texts() if item.kind == POOL else []
    clusters = [*view.of(CLUSTER)]
    if not own and len(clusters) == 1:
        own = clusters[0].root["nodeLocations"].texts()
    return [*own] or [None]


def _pods(item: Item, view: View) -> Cost:
    if item.kind not in RAY:
        return Cost(0, (f"the price of a {item.kind}: how long it runs",))
    hours = _hours(item)
    parts = [_group(pod, view, hours) for pod in tpu_pods(item)]
    return Cost(sum(p.usd for p in parts), tuple(one for p in parts for one in p.unpriced))


def _hours(item: Item) -> float:
    """One run a month of a job, as long as its deadline allows; all else stays."""
    limit = item.root["spec"]["activeDeadlineSeconds"] if item.kind == "RayJob" else None
    if limit is None or limit.number is None:
        return HOURS_PER_MONTH
    return min(HOURS_PER_MONTH, limit.number / 3600)


def _group(pod: Pod, view: View, hours: float) -> Cost:
    found = shape(pod)
    if found is None:
        return Cost(0, (f"the price of group {pod.name}: its slice",))
    accelerator, form, _chips = found
    [generation] = [g.name for g in GENERATIONS.values() if g.gke_accelerator == accelerator]
    label = pod.selector[SLICE_LABEL].text
    pools = [
        pool
        for pool in view.of(POOL)
        if label is not None and slice_of(pool) == label and fits(pool, found)
    ]
    chip_hours = topologies.chips(form) * slices(pod) * hours
    if pools:
        grown = [pool for pool in pools if not _kept(pool)]
        places = [Place(_terms_of(p), zone) for p in grown for zone in _zones_of(p, view)]
        return _worst(generation, places, chip_hours) if places else Cost(0)
    if (name := pod.compute_class) is not None:
        classes = [one for one in view.of(CLASS) if one.name == name]
        if not classes:
            return Cost(0, (f"the price of class {name}: it is not here",))
        return _worst(generation, _rungs(classes[0], found, view), chip_hours)
    return _worst(generation, _chosen(pod, view), chip_hours)


def _rungs(item: Item, wanted: tuple[str, str, int], view: View) -> Iterator[Place]:
    """Those of the pod's own shape: on others it cannot land."""
    spec = item.root["spec"]
    default = spec["priorityDefaults"]["location"]["zones"].texts()
    for priority in spec["priorities"]:
        tpu = priority["tpu"]
        if tpu and (tpu["type"].text, tpu["topology"].text) != wanted[:2]:
            continue
        entries = priority["reservations"]["specific"]
        zones = [zone.text for at in (priority["location"], *entries) for zone in at["zones"]]
        kind = _terms_of_rung(priority)
        yield from (Place(kind, zone) for zone in zones or default or _zones_of(item, view))


def _terms_of_rung(priority: Node) -> str:
    if priority["spot"].flag:
        return "spot"
    if priority["flexStart"]["enabled"].flag:
        return "flex_start"
    affinity = priority["reservations"]["affinity"].text
    return "on_demand" if affinity in (None, "None") else "reservation"


def _chosen(pod: Pod, view: View) -> Iterator[Place]:
    """By the pod's own labels."""
    selector = pod.selector
    spot, flex = (selector[label].text == "true" for label in SPOT_LABELS)
    named = selector[PROVISIONING_LABEL].text
    kind = "on_demand"
    if selector[RESERVATION_LABEL]:
        kind = "reservation"
    elif spot or named == "spot":
        kind = "spot"
    elif flex or named == "flex-start":
        kind = "flex_start"
    zone = selector[ZONE_LABEL].text
    zones = [zone] if zone is not None else _zones_of(pod.item, view)
    yield from (Place(kind, zone) for zone in zones)


def _worst(generation: str, places: Iterable[Place], chip_hours: float) -> Cost:
    """Of ways that exclude each other."""
    prices = {place: PUBLIC.chip(generation, *place) for place in places}
    known = [price.usd_per_hour for price in prices.values() if price is not None]
    unknown = [
        f"the price of {generation} {kind} in {zone or 'a zone that is not said'}"
        for (kind, zone), price in prices.items()
        if price is None and chip_hours
    ]
    return Cost(chip_hours * max(known, default=0.0), tuple(unknown))
