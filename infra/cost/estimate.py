"""What a stack costs a month: each thing that is paid for, and each of the ways it may come.

Counted is what grows with the declaration: chips, machines, the cluster. Disks, buckets, network
and logs are not. A fallback is an alternative to its slice: both at once is what a quota allows,
not what a job asks for.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from infra.config import (
    AutopilotCluster,
    CheckSpec,
    DataSpec,
    GkeCluster,
    InferSpec,
    LocalCluster,
    ServeSpec,
    SpmdSpec,
    StackConfig,
    TrainSpec,
    Workload,
)
from infra.cost.prices import Price, Prices
from infra.tpu.capacity import FlexStart, Reservation, Rung, written
from infra.tpu.slice import TpuSlice

HOURS_PER_MONTH = 730.0
"""A twelfth of 365 days, as Google's calculator has it."""


@dataclass(frozen=True)
class Usage:
    """What a stack file does not say, and a month's price needs."""

    hours_per_month: float = HOURS_PER_MONTH
    """Of all that stays: services, kept nodes, the cluster itself."""
    runs_per_month: int = 1
    """Of a training job, each as long as its deadline allows."""


@dataclass(frozen=True)
class Option:
    """One of the ways in which something may come."""

    how: str
    unit: str
    amount: int
    """Of units at a time."""
    hours: float
    price: Price | None
    """Of one unit; None if it is unknown."""
    note: str = ""

    @property
    def unit_hours(self) -> float:
        return self.amount * self.hours

    @property
    def usd(self) -> float | None:
        """Unknown, unless there is nothing to pay for, if the price is."""
        if self.price is None:
            return None if self.unit_hours else 0.0
        return self.unit_hours * self.price.usd_per_hour


@dataclass(frozen=True)
class Span:
    """The known prices, from the best option to the worst."""

    least: float
    most: float
    partial: bool
    """Whether there is an option of unknown price, so that either end may be another."""


@dataclass(frozen=True)
class Line:
    """One thing that is paid for. Its options exclude each other."""

    name: str
    options: tuple[Option, ...]

    @property
    def span(self) -> Span | None:
        """None if no price is known."""
        known = [option.usd for option in self.options if option.usd is not None]
        return Span(min(known), max(known), len(known) < len(self.options)) if known else None


@dataclass(frozen=True)
class Estimate:
    stack: str
    usage: Usage
    lines: tuple[Line, ...]
    """Of one month."""
    upgrades: tuple[Line, ...]
    """Of one upgrade each, on top of the month."""
    budget: int | None
    """In USD a month."""

    @property
    def total(self) -> Span | None:
        """None if no price is known."""
        spans = [line.span for line in self.lines]
        known = [span for span in spans if span is not None]
        if not known:
            return None
        return Span(
            sum(span.least for span in known),
            sum(span.most for span in known),
            len(known) < len(spans) or any(span.partial for span in known),
        )

    @property
    def over_budget(self) -> bool:
        """Whether what is known to be paid at worst is more than the budget."""
        return bool(self.budget and self.total and self.total.most > self.budget)


def estimate(config: StackConfig, prices: Prices, usage: Usage) -> Estimate:
    """Of a stack in a cloud."""
    return Estimate(
        stack=config.stack,
        usage=usage,
        lines=(*_slices(config, prices, usage), *_cluster(config, prices, usage)),
        upgrades=tuple(_upgrades(config, prices)),
        budget=config.team.max_usd_per_month if config.team else None,
    )


def _slices(config: StackConfig, prices: Prices, usage: Usage) -> Iterator[Line]:
    for tpu in config.slices:
        held = _held(tpu, [one for one in config.workloads if _uses(one, tpu)], usage)
        yield Line(
            f"slice {tpu.name}",
            tuple(
                option
                for shape in tpu.shapes
                for rung in shape.capacity
                for option in _options(config, prices, shape, rung, held)
            ),
        )


@dataclass(frozen=True)
class _Held:
    hours: float
    why: str


def _held(tpu: TpuSlice, users: list[Workload], usage: Usage) -> _Held:
    """For how long the stack has the hosts."""
    busy = _busy(users, usage)
    if not tpu.keep_nodes:
        return busy
    idle = usage.hours_per_month - busy.hours
    why = f"kept, of which idle {idle:,.0f} hours or more" if idle > 0 else "kept"
    return _Held(usage.hours_per_month, why)


def _busy(users: list[Workload], usage: Usage) -> _Held:
    month = usage.hours_per_month
    match users:
        case []:
            return _Held(0, "no workload uses it")
        case [TrainSpec() | InferSpec() | SpmdSpec() | CheckSpec() as job, *_]:
            hours = usage.runs_per_month * job.deadline.total_seconds() / 3600
            each = f"{usage.runs_per_month} x {written(job.deadline)} at most"
            return _Held(min(month, hours), each)
        case [ServeSpec(), *_]:
            return _Held(month, "serves")
        case _:
            return _Held(month, "at most: freed when idle")


def _options(
    config: StackConfig, prices: Prices, shape: TpuSlice, rung: Rung, held: _Held
) -> Iterator[Option]:
    """One for each price that its zones have."""
    zones = _zones(config, rung)
    found: dict[Price | None, list[str]] = {}
    for zone in zones or (None,):
        price = prices.chip(shape.generation.name, rung.key, zone)
        found.setdefault(price, []).append(zone or "a zone that GKE chooses")
    match rung.terms:
        case FlexStart(max_run_duration=run):
            note = f"{held.why}; a host ends after {written(run)}"
        case Reservation():
            note = f"{held.why}; its owner pays unused hours too"
        case _:
            note = held.why
    for price, where in found.items():
        yield Option(
            how=f"{shape.topology} of {shape.generation.name}, {rung.kind}, {', '.join(where)}",
            unit="chip",
            amount=shape.chips * shape.count,
            hours=held.hours,
            price=price,
            note=note,
        )


def _zones(config: StackConfig, rung: Rung) -> tuple[str, ...]:
    if rung.terms.zone:
        return (rung.terms.zone,)
    return () if isinstance(config.cluster, LocalCluster) else config.cluster.zones


def _cluster(config: StackConfig, prices: Prices, usage: Usage) -> Iterator[Line]:
    """Nothing in a cluster of others: they pay for it."""
    cluster, hours = config.cluster, usage.hours_per_month
    if not isinstance(cluster, GkeCluster | AutopilotCluster):
        return
    fee = Option("GKE's management", "cluster", 1, hours, prices.cluster())
    yield Line("cluster", (fee,))
    if isinstance(cluster, GkeCluster):
        pool = cluster.cpu_pool
        price = prices.machine(pool.machine_type, cluster.region)
        yield Line(
            "CPU pool",
            tuple(
                Option(pool.machine_type, "node", nodes, hours, price, "heads, data, system")
                for nodes in sorted({pool.min_nodes, pool.max_nodes})
            ),
        )
        return
    heads = len(config.workloads)
    workers = sum(one.workers for one in config.workloads if isinstance(one, DataSpec))
    chips = sum(tpu.chips * tpu.count for tpu in config.slices)
    yield Line("CPU pods", (Option("heads and data", "pod", heads + workers, hours, None),))
    yield Line("Autopilot", (Option("premium on TPU hosts", "chip", chips, hours, None),))


def _upgrades(config: StackConfig, prices: Prices) -> Iterator[Line]:
    """While a second cluster starts, it holds as many slices again."""
    for workload in config.workloads:
        if not isinstance(workload, ServeSpec) or workload.upgrade == "in_place":
            continue
        limit = workload.startup_timeout
        held = _Held(limit.total_seconds() / 3600, f"second set, {written(limit)} at most")
        tpu = config.slice(workload.slice)
        options = (
            option for rung in tpu.capacity for option in _options(config, prices, tpu, rung, held)
        )
        yield Line(f"upgrade of {workload.name}", tuple(options))


def _uses(workload: Workload, tpu: TpuSlice) -> bool:
    return not isinstance(workload, DataSpec) and workload.slice == tpu.name
