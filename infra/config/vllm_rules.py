"""Whether a model that vLLM is to serve fits its slice, before any of it is paid for.

What is counted: the weights, and the cache of keys and values for the declared requests. What
vLLM may not fill (MEMORY_PART) is for activations and compiled programs. A model's sizes come from
its `config.json`; where that cannot be read, a model of the hub is as large as the stack file says,
else as its name does.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from infra.config import model_files
from infra.config.cluster import AutopilotCluster
from infra.config.entries import Entries
from infra.config.model_facts import WEIGHT_BYTES, ModelFacts, UncountedError
from infra.config.models import Folder, Hub, ServeSpec
from infra.errors import Problem
from infra.tpu.node import pod_disk_gib
from infra.tpu.slice import TpuSlice
from workloads.settings import VLLM_MEMORY_PART

LANES = 128
TIGHT = 0.5
"""Part of the memory from which weights are remarked: a model of 0.51 (70 billion parameters of
8 bits on a v5e 2x4) was reported to run out of it (vllm-project/vllm 9331)."""

_GIB = 2**30
_FEWER_BITS = re.compile(r"awq|gptq|gguf|fp4|fp8|int4|int8|w4a|w8a|[48]bit", re.IGNORECASE)
_SIZE_IN_NAME = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,2})?)[bB](?![A-Za-z0-9])")


@dataclass(frozen=True)
class Served:
    """A model on a copy's devices, as far as it is known."""

    server: ServeSpec
    tpu: TpuSlice
    facts: ModelFacts | None
    unknown: str
    """Why there are no facts."""

    @property
    def tensor(self) -> int:
        return self.server.mesh_on(self.tpu.devices).tensor

    @property
    def hbm_gib(self) -> int:
        return self.tensor * self.tpu.hbm_gib_per_device

    @property
    def usable_gib(self) -> float:
        return self.hbm_gib * VLLM_MEMORY_PART

    @property
    def weights_gib(self) -> float | None:
        """As the stack file says, else as counted, else as the model's name says."""
        model = self.server.model
        if isinstance(model, Hub) and model.weights_gib:
            return model.weights_gib
        if self.facts is None:
            return _size_by_name(model.hub, self.server.dtype) if isinstance(model, Hub) else None
        bits = self.facts.weight_bits or 8 * WEIGHT_BYTES[self.server.dtype]
        return self.facts.parameters * bits / 8 / _GIB

    @property
    def request_gib(self) -> float | None:
        """Cache of one request of the greatest length.

        Chips beyond the key-value heads hold copies, and a head is padded to the chip's lanes
        unless it is half of them (tpu-inference, utils, 2026-11).
        """
        if self.facts is None:
            return None
        heads = max(self.facts.key_value_heads, self.tensor)
        width = self.facts.head_dim
        if width != LANES // 2:
            width = math.ceil(width / LANES) * LANES
        values = 2 * self.facts.layers * heads * width * self.server.max_sequence_length
        return values * WEIGHT_BYTES[self.server.dtype] / _GIB


def served(entries: Entries) -> Iterator[tuple[str, Served]]:
    for where, server in entries.served.items():
        tpu = entries.slice_of(server)
        if tpu and server.engine == "vllm":
            yield where, _look(server, tpu, entries)


def faults(entries: Entries) -> Iterator[Problem]:
    for where, one in served(entries):
        if one.facts:
            yield from _uneven(f"{where}.mesh.tensor", one, one.facts, entries)
            yield from _too_long(f"{where}.max_sequence_length", one, one.facts, entries)
        yield from _too_large(f"{where}.model", one, entries)
        yield from _no_disk(f"{where}.model.hub", one, entries)


def remarks(entries: Entries) -> Iterator[Problem]:
    for where, one in served(entries):
        yield from _tight(f"{where}.model", one, entries)
        yield from _waiting(f"{where}.max_batch", one, entries)


def told(entries: Entries) -> dict[str, str]:
    """A sentence for each served model, by its workload's name."""
    return {} if entries.scope.hidden else {o.server.name: _told(o) for _, o in served(entries)}


def _told(one: Served) -> str:
    weights, request = one.weights_gib, one.request_gib
    if weights is None or request is None:
        size = "" if weights is None else f"{weights:.1f} GiB of weights by its name; "
        return f"{size}cache and heads are not checked: {one.unknown}"
    rows, length = one.server.max_batch, one.server.max_sequence_length
    return (
        f"{weights:.1f} GiB of weights, {rows * request:.1f} GiB of cache for {rows} x {length} "
        f"tokens; vLLM may use {one.usable_gib:.1f} of {one.hbm_gib} GiB"
    )


def _look(server: ServeSpec, tpu: TpuSlice, entries: Entries) -> Served:
    trained, model = entries.model_of(server), server.model
    if trained:
        sizes = entries.sizes_of(trained)
        why = "" if sizes else "the model that its training starts from does not lie here"
        return Served(server, tpu, sizes, why)
    if not isinstance(model, Folder | Hub):
        return Served(server, tpu, None, "its model is not declared")
    try:
        return Served(server, tpu, model_files.facts(model, online=entries.online), "")
    except UncountedError as error:
        return Served(server, tpu, None, str(error))


def _size_by_name(hub: str, dtype: str) -> float | None:
    """None if the name says nothing, more than one thing, or fewer bits."""
    sizes = [float(size) for size in _SIZE_IN_NAME.findall(hub)]
    if len(sizes) != 1 or _FEWER_BITS.search(hub):
        return None
    return sizes[0] * 1e9 * WEIGHT_BYTES[dtype] / _GIB


def _uneven(where: str, one: Served, facts: ModelFacts, entries: Entries) -> Iterator[Problem]:
    """The rules of vLLM itself: a device takes whole heads and an equal part of the feed-forward.

    Fewer key-value heads than devices are copied; the vocabulary is padded to fit.
    """
    quote, size = entries.scope.quote, one.tensor
    shared = facts.key_value_heads
    uneven = [
        f"{name} {quote(count)}"
        for name, count in (
            ("attention heads", facts.attention_heads),
            ("feed-forward size", facts.intermediate_size),
        )
        if count % size
    ]
    if shared % size and size % shared:
        uneven.append(f"key-value heads {quote(shared)} (nor is it a multiple of them)")
    if uneven:
        each = one.tpu.generation.devices_per_chip
        chips = range(1, facts.attention_heads // each + 1)
        fits = [n for n in chips if divides(facts, n * each)]
        yield entries.scope.problem(
            where,
            size,
            f"does not divide the model's {', '.join(uneven)}",
            f"use a slice of {', '.join(map(str, fits))} chips, or another model",
        )


def divides(facts: ModelFacts, size: int) -> bool:
    """Whether vLLM can cut such a model over so many devices."""
    shared = facts.key_value_heads
    whole = facts.attention_heads % size == 0 and facts.intermediate_size % size == 0
    return whole and (shared % size == 0 or size % shared == 0)


def _too_long(where: str, one: Served, facts: ModelFacts, entries: Entries) -> Iterator[Problem]:
    length = one.server.max_sequence_length
    if facts.longest is not None and length > facts.longest:
        longest = entries.scope.quote(facts.longest)
        what = f"is more than the {longest} tokens that the model was made for"
        yield entries.scope.problem(where, length, what, f"use {longest} or less")


def _too_large(where: str, one: Served, entries: Entries) -> Iterator[Problem]:
    show, weights, request = entries.scope.show, one.weights_gib, one.request_gib
    if weights is None:
        return
    if weights > one.hbm_gib:
        yield Problem(
            where,
            f"{show(f'{weights:.0f}')} GiB of weights do not fit the {show(str(one.hbm_gib))} GiB "
            "that the chips of one copy have",
            "use a larger topology, or write weights_gib if what is stored is smaller",
        )
    elif weights + (request or 0) > one.usable_gib:
        sizes = f"{weights:.1f} GiB of weights and {request or 0:.1f} of cache for one request"
        yield Problem(
            where,
            f"{show(sizes)} are more than the {show(f'{one.usable_gib:.1f}')} of "
            f"{show(str(one.hbm_gib))} GiB that vLLM may fill; the rest is for compiled programs",
            "use a larger topology, or a smaller max_sequence_length",
        )


def _no_disk(where: str, one: Served, entries: Entries) -> Iterator[Problem]:
    if not isinstance(one.server.model, Hub) or one.weights_gib is None:
        return
    autopilot = isinstance(entries.cluster, AutopilotCluster)
    room_gib = pod_disk_gib(one.tpu.boot_disk_gib, autopilot=autopilot)
    if one.weights_gib > room_gib:
        yield Problem(
            where,
            f"{entries.scope.show(f'{one.weights_gib:.0f}')} GiB of weights do not fit the "
            f"{room_gib} GiB that a host's disk leaves to its pod, and each host stores the whole "
            "model",
            f"write a larger boot_disk_gib on slice {one.tpu.name}, or weights_gib if what is "
            "stored is smaller",
        )


def _tight(where: str, one: Served, entries: Entries) -> Iterator[Problem]:
    weights, show = one.weights_gib, entries.scope.show
    if weights is not None and weights > TIGHT * one.hbm_gib:
        yield Problem(
            where,
            f"{show(f'{weights:.1f}')} GiB of weights leave "
            f"{show(f'{one.usable_gib - weights:.1f}')} of {show(str(one.hbm_gib))} GiB for the "
            "cache",
            "use a larger topology if it or the compiler finds no room",
        )


def _waiting(where: str, one: Served, entries: Entries) -> Iterator[Problem]:
    weights, request = one.weights_gib, one.request_gib
    if weights is None or request is None:
        return
    rows, room = one.server.max_batch, int((one.usable_gib - weights) / request)
    if room < rows:
        left = f"{one.usable_gib - weights:.1f}"
        yield entries.scope.problem(
            where,
            rows,
            f"requests of full length are more than the {entries.scope.show(str(room))} whose "
            f"cache fits the {entries.scope.show(left)} GiB beside the weights",
            "some then wait or are computed twice; use a larger topology, or smaller limits",
        )
