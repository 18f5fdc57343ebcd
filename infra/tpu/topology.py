"""Which topologies a machine type can form, and what to say about one it cannot.

A topology is legal when GKE makes it from that machine and Ray's table has it; the catalogue keeps
the intersection, so the two rules are needed apart only to explain a refusal.
"""

import math
import re
import unicodedata

from infra.tpu.catalog import (
    GENERATIONS,
    GKE_CUBE_EDGE,
    GKE_LONGEST_EDGE,
    MACHINES,
    Generation,
    Machine,
)

_FORM = re.compile(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){1,2}")
_LISTED = 10
"""Up to this many legal topologies are listed whole, of more only the nearest."""
_NEAREST = 5


def dimensions(topology: str) -> tuple[int, ...]:
    return tuple(int(size) for size in topology.split("x"))


def chips(topology: str) -> int:
    return math.prod(dimensions(topology))


def topologies(machine: Machine) -> tuple[str, ...]:
    """All legal topologies of a machine type, smallest first."""
    if not machine.multi_host:
        return (machine.host_topology,)
    known = GENERATIONS[machine.generation].ray_topologies
    return tuple(topology for topology in known if chips(topology) % machine.chips == 0)


def made_by_gke(generation: Generation, topology: str) -> bool:
    """Whether GKE's rule allows the topology, on whichever machine type of the generation."""
    if topology in generation.gke_topologies:
        return True
    match dimensions(topology):
        case (a, b, c) if generation.gke_custom:
            in_cubes = all(size % GKE_CUBE_EDGE == 0 for size in (a, b, c))
            return (
                in_cubes and a <= b <= c <= GKE_LONGEST_EDGE and a * b * c <= generation.max_chips
            )
        case _:
            return False


def well_formed(text: str) -> bool:
    """Whether the text is a topology of any kind, real or not."""
    return _FORM.fullmatch(text.strip().lower()) is not None


def is_legal(machine: Machine, text: str) -> bool:
    """Case and outer spaces do not matter; nothing else is forgiven."""
    return text.strip().lower() in topologies(machine)


def refusal(machine: Machine, text: str) -> tuple[str, str]:
    """What is wrong with a topology that does not match, and the way out."""
    topology = text.strip().lower()
    if not well_formed(text):
        return "is not a topology", _rewritten(machine, text) or _legal(machine, None)
    generation = GENERATIONS[machine.generation]
    if made_by_gke(generation, topology) and topology not in generation.ray_topologies:
        table = f"Ray's table of {generation.ray_version} topologies"
        what = f"exists on GKE, but {table} lacks it, so Ray cannot reserve such a slice"
        return what, _legal(machine, topology)
    what = f"is no topology of {machine.name}"
    if respelled := _reordered(machine, topology):
        return what, f"write {respelled}"
    others = _machines_with(topology, machine.generation)
    elsewhere = f", or machine_type {' or '.join(others)} for {topology}" if others else ""
    return what, _legal(machine, topology) + elsewhere


def _legal(machine: Machine, wanted: str | None) -> str:
    """The way out: all legal topologies, or the nearest in size where there are many."""
    legal = topologies(machine)
    if len(legal) == 1:
        return f"use {legal[0]}, the only one of {machine.name}"
    if len(legal) <= _LISTED:
        return f"use one of {', '.join(legal)}"
    size = chips(wanted or legal[0])
    nearest = sorted(legal, key=lambda topology: abs(math.log(chips(topology) / size)))[:_NEAREST]
    nearest.sort(key=legal.index)
    which = "nearest" if wanted else "smallest"
    return f"use one of {', '.join(nearest)} (the {which} of {len(legal)})"


def _rewritten(machine: Machine, text: str) -> str | None:
    """The legal topology that odd characters, inner spaces or leading zeros hide."""
    plain = unicodedata.normalize("NFKC", text).lower()
    plain = plain.replace("\N{MULTIPLICATION SIGN}", "x").replace("*", "x")
    sizes = ["".join(size.split()).lstrip("0") for size in plain.split("x")]
    topology = "x".join(sizes)
    return f"write {topology}" if is_legal(machine, topology) else None


def _reordered(machine: Machine, topology: str) -> str | None:
    """The legal topology of the same sizes, whatever their order and however many ones."""

    def sizes(shape: str) -> list[int]:
        return sorted(size for size in dimensions(shape) if size > 1)

    same = [legal for legal in topologies(machine) if sizes(legal) == sizes(topology)]
    return same[0] if same else None


def _machines_with(topology: str, generation: str) -> list[str]:
    """Machine types on which the topology is legal: of the generation, or else of any."""
    legal = [machine for machine in MACHINES.values() if topology in topologies(machine)]
    same = [machine.name for machine in legal if machine.generation == generation]
    return same or [machine.name for machine in legal]
