"""What a compiled program sends between devices, read from its text.

A collective inside a loop counts once for each round. XLA's text for TPU does not say how many
there are, but its loops over a scan count up to a constant, which their condition names. Both sides
of a conditional count, since either may run.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from workloads.preflight.program import Collective

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

_HEADER = re.compile(r"^(ENTRY )?%([\w.-]+) \(")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.-]+) = (.*?) ([a-z][\w-]*)\(([^)]*)\)(.*)$")
_ARRAY = re.compile(r"\b(pred|token|[a-z]+\d+\w*)\[([\d,]*)\]")
_BITS = re.compile(r"\d+")
_OPERAND = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|branch_computations|\w+_computation)=(\{[^}]*\}|\S+)"
)
_GROUPS_IOTA = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_GROUPS_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_GROUPS_MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}")
_AXIS = re.compile(r"'([^']+)'=(\d+)")


@dataclass(frozen=True)
class _Instruction:
    name: str
    shape: str
    opcode: str
    operands: list[str]
    rest: str
    literal: str
    """What stands between the parentheses: of a constant its value."""


@dataclass(frozen=True)
class _Computation:
    instructions: dict[str, _Instruction] = field(default_factory=dict)

    def bytes_of(self, names: list[str]) -> int:
        return sum(_size(self.instructions[name].shape) for name in names)


def collectives(text: str, *, slices: int) -> tuple[list[Collective], int]:
    """The collectives of one step, and the loops around some whose rounds are not known."""
    program, entry = _parse(text)
    counts: Counter[tuple[str, int]] = Counter()
    payloads: Counter[tuple[str, int]] = Counter()
    unknown = 0

    def walk(name: str, times: int) -> bool:
        """Whether there was a collective in it."""
        nonlocal unknown
        found = False
        computation = program[name]
        for one in computation.instructions.values():
            if sent := _sent(one, computation, slices):
                kind, group, payload = sent
                counts[kind, group] += times
                payloads[kind, group] += times * payload
                found = True
            rounds = _rounds(one, computation, program) if one.opcode == "while" else 1
            inside = [walk(callee, times * (rounds or 1)) for callee in _callees(one, program)]
            unknown += rounds is None and any(inside)
            found = found or any(inside)
        return found

    walk(entry, 1)
    made = [
        Collective.model_validate(
            {"kind": kind, "group": group, "count": count, "payload_bytes": payloads[kind, group]}
        )
        for (kind, group), count in sorted(counts.items())
    ]
    return made, unknown


def _parse(text: str) -> tuple[dict[str, _Computation], str]:
    """The computations by name, and the name of the first to run."""
    program: dict[str, _Computation] = {}
    current, entry = _Computation(), ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            current = program[header[2]] = _Computation()
            entry = header[2] if header[1] else entry
        elif found := _INSTRUCTION.match(line):
            name, shape, opcode, inner, rest = found.groups()
            operands = _OPERAND.findall(inner)
            current.instructions[name] = _Instruction(name, shape, opcode, operands, rest, inner)
    return program, entry


def _sent(one: _Instruction, within: _Computation, slices: int) -> tuple[str, int, int] | None:
    """Kind, group and payload of a collective. The end of an asynchronous one is not counted."""
    kind = one.opcode.removesuffix("-start")
    if one.opcode == "send" and "_xla_megascale_transfer_type" in one.rest:
        return "dcn", slices, within.bytes_of(one.operands[:1])
    if kind not in KINDS:
        return None
    group, payload = _group(one.rest), within.bytes_of(one.operands)
    return kind, group, payload * group if kind == "all-gather" else payload


def _group(attributes: str) -> int:
    """Chips of one group; a permutation has pairs."""
    if found := _GROUPS_IOTA.search(attributes):
        return int(found[1])
    if found := _GROUPS_LISTED.search(attributes):
        return found[1].count(",") + 1
    if found := _GROUPS_MESH.search(attributes):
        sizes = {name: int(size) for name, size in _AXIS.findall(found[1])}
        group = 1
        for axis in re.findall(r"'([^']+)'", found[2]):
            group *= sizes[axis]
        return group
    return 2


def _callees(one: _Instruction, program: dict[str, _Computation]) -> Iterator[str]:
    for found in _CALLED.findall(one.rest):
        yield from (name for name in _OPERAND.findall(found) if name in program)


def _rounds(
    loop: _Instruction, within: _Computation, program: dict[str, _Computation]
) -> int | None:
    """How often a loop runs that counts upwards by one to a constant; None for any other."""
    found = re.search(r"condition=%([\w.-]+)", loop.rest)
    condition = program[found[1]] if found else _Computation()
    tests = [one for one in condition.instructions.values() if one.opcode == "compare"]
    test = tests[-1] if tests else None
    if test is None or "direction=LT" not in test.rest:
        return None
    counter, limit = (condition.instructions[name] for name in test.operands)
    place = re.search(r"index=(\d+)", counter.rest)
    if counter.opcode != "get-tuple-element" or place is None:
        return None
    carried = within.instructions[loop.operands[0]]
    start = _constant(carried.operands[int(place[1])], within) if carried.operands else None
    stop = _constant(limit.name, condition)
    return None if start is None or stop is None else stop - start


def _constant(name: str, within: _Computation) -> int | None:
    """The whole number that a value is, seen through copies."""
    one = within.instructions[name]
    while one.opcode.startswith(("copy", "bitcast")) and one.operands:
        one = within.instructions[one.operands[0]]
    return int(one.literal) if one.opcode == "constant" and one.literal.isdigit() else None


def _size(shape: str) -> int:
    """Bytes of an array, or of all arrays of a tuple."""
    return sum(_array_size(dtype, dimensions) for dtype, dimensions in _ARRAY.findall(shape))


def _array_size(dtype: str, dimensions: str) -> int:
    if dtype == "token":
        return 0
    elements = 1
    for size in filter(None, dimensions.split(",")):
        elements *= int(size)
    bits = _BITS.search(dtype)
    return elements * int(bits[0] if bits else 8) // 8
