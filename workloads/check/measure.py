"""What the check computes: products on each device, and collectives over all. No Ray in here.

Sizes and bandwidths are those of NVIDIA's nccl-tests (doc/PERFORMANCE.md), which the field reports:
the size is what each device ends up with; algorithm bandwidth is size by time; bus bandwidth is
what each link must have carried for it, so it can be held against the hardware's own figure.

Every value is a whole number that float32 holds, so results are right or wrong, never nearly so.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from pydantic import BaseModel, ConfigDict

Operation = Literal["all_reduce", "all_gather"]
OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather")

SIZES_MIB = {"tpu": (1, 8, 64), "cpu": (1,)}
"""Of the collectives. The largest is to show the links' own speed, the smallest the latency."""
MATRIX_SIDE = {"tpu": 8192, "cpu": 256}
"""Of the products that time a device: long enough to keep it busy, short enough to repeat."""
_PATTERN, _RANKS = 251, 64
"""Element i of device d is i % 251 + d % 64."""
_AXIS = "all"


class Timing(BaseModel):
    """One collective as one host saw it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation: Operation
    devices: int
    size_bytes: int
    """What each device ends up with."""
    median_s: float
    wrong: dict[int, tuple[int, ...]] = {}
    """By the id of a device of this host that got wrong values: the devices whose they were. Of a
    sum nobody can say that, so it is none."""

    @property
    def algorithm_gb_per_s(self) -> float:
        return self.size_bytes / self.median_s / 1e9

    @property
    def bus_gb_per_s(self) -> float:
        return self.algorithm_gb_per_s * bus_factor(self.operation, self.devices)


def bus_factor(operation: Operation, devices: int) -> float:
    """Of algorithm bandwidth. A ring sends all but its own part, and for a sum twice."""
    passes = 2 if operation == "all_reduce" else 1
    return passes * (devices - 1) / devices


def collective(devices: Sequence[Any], operation: Operation, size_mib: int, repeats: int) -> Timing:
    """Called at once by every process that has one of the devices. Each call is timed by itself."""
    mesh, count = Mesh(np.array(devices), (_AXIS,)), len(devices)
    elements = size_mib * 2**20 // 4
    part = elements if operation == "all_reduce" else -(-elements // count)
    given = _on_each(lambda: _values(part, jax.lax.axis_index(_AXIS))[None], mesh, 0)()
    run = _on_each(_sum if operation == "all_reduce" else _gather, mesh, 1)
    result = run(given)
    right = _on_each(lambda got: _is_right(got, operation, part, count), mesh, 1)(result)
    return Timing(
        operation=operation,
        devices=count,
        size_bytes=4 * (part if operation == "all_reduce" else part * count),
        median_s=_median_s(lambda: run(given), repeats),
        wrong=_wrong(right, devices, operation),
    )


def product_s(device: Any, repeats: int) -> float:
    """Median time of a matrix product. Raises ArithmeticError if it is wrong."""
    side = MATRIX_SIDE[device.platform]
    ones = jax.device_put(np.ones((side, side), jnp.bfloat16), device)
    product = jax.jit(jnp.matmul)
    if not bool((product(ones, ones) == side).all()):
        raise ArithmeticError(f"device {device.id} computes a wrong product of matrices")
    return _median_s(lambda: product(ones, ones), repeats)


def _sum(part: jax.Array) -> jax.Array:
    return jax.lax.psum(part, _AXIS)


def _gather(part: jax.Array) -> jax.Array:
    return jax.lax.all_gather(part, _AXIS, axis=1, tiled=True)


def _values(elements: int, rank: jax.Array) -> jax.Array:
    index = jnp.arange(elements) % _PATTERN
    return (index + rank % _RANKS).astype(jnp.float32)


def _is_right(got: jax.Array, operation: Operation, part: int, count: int) -> jax.Array:
    """(1, parts): of a sum one part, of what was gathered one a device."""
    if operation == "all_reduce":
        ranks = sum(rank % _RANKS for rank in range(count))
        wanted = (count * (jnp.arange(part) % _PATTERN) + ranks)[None]
    else:
        wanted = jax.vmap(lambda rank: _values(part, rank))(jnp.arange(count))
    return (got.reshape(wanted.shape) == wanted).all(axis=1)[None]


def _on_each(body: Callable[..., jax.Array], mesh: Mesh, inputs: int) -> Callable[..., jax.Array]:
    """`body` on every device, whose results are the rows of one array."""
    specs = (P(_AXIS),) * inputs
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=P(_AXIS)))


def _wrong(
    right: jax.Array, devices: Sequence[Any], operation: Operation
) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for shard in right.addressable_shards:
        row = np.asarray(shard.data)[0]
        if not row.all():
            sources = np.flatnonzero(~row) if operation == "all_gather" else ()
            found[shard.device.id] = tuple(devices[int(source)].id for source in sources)
    return found


def _median_s(call: Callable[[], Any], repeats: int) -> float:
    """The caller has warmed it up."""
    times: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - started)
    return statistics.median(times)
