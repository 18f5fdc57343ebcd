"""What the check found, as data: what each host said, what is wrong with it, and how it is told."""

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from workloads import versions
from workloads.check.measure import Timing
from workloads.contract import SliceContract, device_noun, told_devices

NOT_REPORTED = "not reported"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Device(_Part):
    """A chip as JAX sees it, or one of its cores. None: its platform does not say."""

    id: int
    platform: str
    kind: str
    coordinates: tuple[int, ...] | None = None
    """Of the chip in its slice: x, y, z."""
    core: int | None = None
    """Of several that share a chip."""
    hbm_gib: float | None = None
    """That programs may use."""


class HostReport(_Part):
    """What one host said, as far as it came."""

    host: str
    slice_index: int
    worker_id: int | None
    address: str
    process: int | None = None
    """By JAX's own count. None: it never came that far."""
    versions: dict[str, str] = {}
    devices: tuple[Device, ...] = ()
    products_s: dict[int, float] = {}
    """Median time of a matrix product, by the device's id."""

    @property
    def slowest_s(self) -> float:
        return max(self.products_s.values())


class Collective(_Part):
    """One collective as all hosts saw it: as slow as for the slowest."""

    over: str
    timing: Timing
    algorithm_gb_per_s: float
    bus_gb_per_s: float


class Report(_Part):
    slice: str
    shape: str
    hosts: tuple[HostReport, ...] = ()
    collectives: tuple[Collective, ...] = ()
    faults: tuple[str, ...] = ()
    """None: the slice is sound."""
    wall_s: float


def collective(over: str, timings: Sequence[Timing]) -> Collective:
    slowest = max(timings, key=lambda timing: timing.median_s)
    return Collective(
        over=over,
        timing=slowest,
        algorithm_gb_per_s=slowest.algorithm_gb_per_s,
        bus_gb_per_s=slowest.bus_gb_per_s,
    )


def version_faults(head: Mapping[str, str], hosts: Sequence[HostReport]) -> Iterator[str]:
    """Judged before JAX is up: hosts of different versions may wait for each other for ever."""
    for host in hosts:
        for fault in versions.differences(head, host.versions):
            yield f"{host.host}: {fault}; give head and hosts one image"


def device_faults(contract: SliceContract, hosts: Sequence[HostReport]) -> Iterator[str]:
    kinds = Counter(device.kind for host in hosts for device in host.devices)
    common = kinds.most_common(1)[0][0] if kinds else ""
    declared = told_devices(contract.devices_per_host, contract.devices_per_chip)
    for place, host in enumerate(hosts):
        if (there := len(host.devices)) != contract.devices_per_host:
            noun = device_noun(contract.devices_per_chip)
            yield f"{host.host}: has {there} {noun}s, not {declared}; replace that host"
        if others := sorted({one.kind for one in host.devices} - {common}):
            yield f"{host.host}: has {', '.join(others)}, and other hosts {common}; replace it"
        if host.process != place:
            yield (
                f"{host.host}: is process {host.process} to JAX, not {place}; see that nothing but "
                "GKE sets the TPU_ variables of its pod"
            )
    for index in range(contract.slices):
        yield from _coordinate_faults(contract, [h for h in hosts if h.slice_index == index])


def slow_faults(hosts: Sequence[HostReport], factor: float) -> Iterator[str]:
    """Hosts that share a machine share its cores too, so their speeds say nothing of them."""
    if share_a_machine(hosts):
        return
    for host in hosts:
        others = statistics.median(other.slowest_s for other in hosts if other is not host)
        if host.slowest_s > factor * others:
            device = max(host.products_s, key=lambda id_: host.products_s[id_])
            yield (
                f"{host.host}: device {device} takes {host.slowest_s * 1e3:.2f} ms for a product "
                f"of matrices, and others {others * 1e3:.2f} ms (median); more than "
                f"{factor:g} times as long is too slow: replace that host"
            )


def wrong_faults(over: str, host: HostReport, timing: Timing) -> Iterator[str]:
    what = f"{timing.operation} of {timing.size_bytes / 2**20:g} MiB over {over}"
    for device, sources in timing.wrong.items():
        origin = f", those of devices {', '.join(map(str, sources))}" if sources else ""
        yield f"{host.host}: device {device} got wrong values from {what}{origin}; replace the host"


def share_a_machine(hosts: Sequence[HostReport]) -> bool:
    return len({host.address for host in hosts}) < len(hosts) or len(hosts) == 1


def _coordinate_faults(contract: SliceContract, hosts: Sequence[HostReport]) -> Iterator[str]:
    """Each place of the topology has one chip, and each chip one place."""
    seen: dict[tuple[tuple[int, ...], int | None], str] = {}
    for host in hosts:
        for device in host.devices:
            if device.coordinates is None:
                return
            place = (device.coordinates, device.core)
            if other := seen.get(place):
                yield f"{host.host}: has a chip at {_told(place[0])}, as has {other}; replace one"
            seen.setdefault(place, host.host)
    cells = {coordinates for coordinates, _ in seen}
    missing = sorted(_cells(contract.topology, cells) - cells)
    if missing and seen:
        places = ", ".join(map(_told, missing))
        yield (
            f"slice {hosts[0].host.partition(' of ')[2]}: no chip at {places} of "
            f"{contract.topology}; see which host does not show all of its chips"
        )


def _cells(topology: str, seen: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Of the topology, along the axes that fit best: "2x4" may lie either way."""
    sides = [int(side) for side in topology.split("x")]
    sides += [1] * (3 - len(sides))
    ways = (
        set(itertools.product(*(range(side) for side in way)))
        for way in itertools.permutations(sides)
    )
    return min(ways, key=lambda cells: len(cells - seen))


def _told(coordinates: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, coordinates))})"


def lines(report: Report) -> Iterator[str]:
    """The report for people, as two tables."""
    yield f"check of slice {report.slice}: {report.shape}"
    yield from _table([_HOST_HEADER, *(_host_row(host) for host in report.hosts)])
    devices = [device for host in report.hosts for device in host.devices]
    if devices and all(device.coordinates is None for device in devices):
        yield f"coordinates and HBM: {NOT_REPORTED} by {devices[0].kind} devices"
    if devices and share_a_machine(report.hosts):
        yield "products: not compared, since there are no hosts on other machines"
    if report.collectives:
        yield from _table([_COLLECTIVE_HEADER, *map(_collective_row, report.collectives)])
    verdict = f"faults: {len(report.faults)}" if report.faults else "sound"
    yield f"slice {report.slice}: {verdict}, in {report.wall_s:.0f} s"


_HOST_HEADER = ("host", "process", "devices", "kind", "coordinates", "HBM GiB", "product ms")
_COLLECTIVE_HEADER = ("collective", "over", "MiB", "median ms", "algorithm GB/s", "bus GB/s")


def _host_row(host: HostReport) -> tuple[str, ...]:
    places = [_told(device.coordinates) for device in host.devices if device.coordinates]
    memory = {f"{device.hbm_gib:.1f}" for device in host.devices if device.hbm_gib is not None}
    return (
        host.host,
        "-" if host.process is None else str(host.process),
        str(len(host.devices)),
        ", ".join(sorted({device.kind for device in host.devices})) or "-",
        " ".join(places) or "-",
        ", ".join(sorted(memory)) or "-",
        f"{host.slowest_s * 1e3:.2f}" if host.products_s else "-",
    )


def _collective_row(one: Collective) -> tuple[str, ...]:
    return (
        one.timing.operation,
        one.over,
        f"{one.timing.size_bytes / 2**20:.3g}",
        f"{one.timing.median_s * 1e3:.2f}",
        f"{one.algorithm_gb_per_s:.3f}",
        f"{one.bus_gb_per_s:.3f}",
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
