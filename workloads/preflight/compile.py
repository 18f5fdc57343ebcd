"""Compiles the steps that train and serve run for a slice that is not there.

libtpu holds the whole compiler for each generation; it needs no TPU, only the shapes of what the
step takes. What does not fit is refused by the compiler itself, as it would be on the slice.
"""

import re
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from workloads.errors import UserError
from workloads.model import sharding
from workloads.preflight import hlo
from workloads.preflight.flops import matmul_flops
from workloads.preflight.program import Chips, Measured, ServeStep, TrainStep
from workloads.serve.batch import make_programs, prefill_lengths
from workloads.train.step import State, make_trainer

MEGACORE = {"v4"}
"""Of these libtpu has to be told that a chip's two cores are one device; of v5p it knows."""
_OUT_OF_HBM = re.compile(r"\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def measure(program: TrainStep | ServeStep) -> Measured:
    """Raises UserError for what is wrong with the program apart from its size."""
    mesh = sharding.make_mesh(program.mesh, topology_devices(program.chips))
    if isinstance(program, TrainStep):
        step, arguments = _train(program, mesh)
        shared_by = mesh.size
    else:
        step, arguments = _serve(program, mesh)
        # A prompt is one row: devices along the data axis each compute the same.
        shared_by = mesh.size if program.kind == "decode" else mesh.shape[sharding.TENSOR]
    argument_bytes = sum(map(_bytes_a_device, jax.tree.leaves(arguments)))
    if argument_bytes > program.chips.hbm_bytes:
        return Measured(
            argument_bytes=argument_bytes, hbm_bytes=None, limit_bytes=program.chips.hbm_bytes
        )
    traced = step.trace(*arguments)
    flops = matmul_flops(traced.jaxpr) / shared_by
    began = time.monotonic()
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        return _too_large(str(error), argument_bytes)
    return _measured(compiled, argument_bytes, flops, program.chips, time.monotonic() - began)


def topology_devices(chips: Chips) -> Sequence[Any]:
    bounds = [int(size) for size in chips.host_topology.split("x")]
    options: dict[str, Any] = {"chips_per_host_bounds": (*bounds, 1, 1)[:3]}
    if chips.slices > 1:
        options["num_slices"] = chips.slices
    if chips.generation in MEGACORE:
        options["chip_config_name"] = "megacore"
    name = f"{chips.generation}:{chips.topology}"
    return topologies.get_topology_desc(name, "tpu", **options).devices


def _train(program: TrainStep, mesh: Mesh) -> tuple[Any, tuple[Any, ...]]:
    trainer = make_trainer(program.settings, program.model, mesh)

    def step(
        params: Any, optimizer: Any, frozen: Any, tokens: jax.Array
    ) -> tuple[Any, Any, jax.Array]:
        state, loss = trainer.train(State(params, optimizer, frozen), tokens)
        return state.params, state.optimizer, loss

    rows = (program.settings.global_batch, program.sequence_length + 1)
    tokens = jax.ShapeDtypeStruct(rows, jnp.int32, sharding=trainer.batch)
    state = trainer.abstract
    arguments = (state.params, state.optimizer, state.frozen, tokens)
    return jax.jit(step, donate_argnums=(0, 1)), arguments


def _serve(program: ServeStep, mesh: Mesh) -> tuple[Any, tuple[Any, ...]]:
    settings = program.settings
    rows, length = settings.max_batch, settings.max_sequence_length
    dtype = jnp.dtype(settings.dtype)
    graph, state = sharding.abstract(program.model, mesh, dtype)
    # A server keeps its weights in the type it computes in.
    params = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=leaf.sharding), state
    )
    programs = make_programs(nnx.merge(graph, params), rows=rows, length=length)
    cached = NamedSharding(mesh, sharding.CACHE)
    cache = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=cached),
        jax.eval_shape(programs.empty),
    )

    def whole(kind: Any, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, kind, sharding=NamedSharding(mesh, P()))

    if program.kind == "prefill":
        longest = prefill_lengths(length)[-1]
        row, prompt, size = whole(jnp.int32), whole(jnp.int32, 1, longest), whole(jnp.int32, 1)
        return programs.start, (params, cache, row, prompt, size)
    kinds = (jnp.int32, jnp.int32, jnp.uint32, jnp.float32, jnp.float32)
    return programs.step, (params, cache, *(whole(kind, rows) for kind in kinds))


def _bytes_a_device(leaf: jax.ShapeDtypeStruct) -> int:
    if leaf.sharding is None:
        raise TypeError("an argument without a place")
    part = leaf.sharding.shard_shape(leaf.shape)
    size = leaf.dtype.itemsize
    for length in part:
        size *= length
    return size


def _too_large(message: str, argument_bytes: int) -> Measured:
    """What the compiler says that it would need. Raises UserError for any other complaint."""
    found = _OUT_OF_HBM.search(message)
    if found is None:
        raise UserError(f"the compiler refuses it: {message.strip().splitlines()[0]}")
    wanted, unit, limit, limit_unit = found.groups()
    return Measured(
        argument_bytes=argument_bytes,
        hbm_bytes=int(float(wanted) * _UNITS[unit]),
        limit_bytes=int(float(limit) * _UNITS[limit_unit]),
    )


def _measured(
    compiled: Any, argument_bytes: int, flops: float, chips: Chips, compile_s: float
) -> Measured:
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    new_results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    kept = memory.argument_size_in_bytes + new_results
    sent, unknown = hlo.collectives(compiled.as_text(), slices=chips.slices)
    # XLA counts a loop's body once; what lies outside of loops is mostly the state.
    rounds = max(1.0, flops / cost["flops"])
    return Measured(
        argument_bytes=argument_bytes,
        hbm_bytes=kept + memory.temp_size_in_bytes + memory.generated_code_size_in_bytes,
        limit_bytes=chips.hbm_bytes,
        flops=flops,
        traffic_bytes=kept + rounds * max(0.0, cost["bytes accessed"] - kept),
        collectives=tuple(sent),
        unknown_loops=unknown,
        compile_s=round(compile_s, 1),
    )
