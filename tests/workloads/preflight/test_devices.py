"""The catalogue's devices of a chip, against those that JAX shows of libtpu's own slices."""

import json
import os
import subprocess
import sys

from infra.preflight.compiler import ENVIRONMENT
from infra.tpu.catalog import GENERATIONS
from infra.tpu.slice import SliceSpec, TpuSlice
from workloads.preflight.program import Chips

SHAPES = {
    "v4": ("ct4p-hightpu-4t", "2x2x1"),
    "v5e": ("ct5lp-hightpu-4t", "4x4"),
    "v5p": ("ct5p-hightpu-4t", "2x2x2"),
    "v6e": ("ct6e-standard-8t", "2x4"),
    "tpu7x": ("tpu7x-standard-4t", "2x2x2"),
}
ASK = """
import json, sys
from workloads.preflight.compile import topology_devices
from workloads.preflight.program import Chips
print(json.dumps([len(topology_devices(Chips(**one))) for one in json.loads(sys.argv[1])]))
"""


def resolved(machine_type, topology):
    spec = SliceSpec(name="s", machine_type=machine_type, topology=topology)
    return TpuSlice.resolve(spec)


def chips(tpu):
    return Chips(
        generation=tpu.generation.name,
        topology=tpu.topology,
        host_topology=tpu.machine.host_topology,
        slices=1,
        devices=tpu.devices,
        hbm_gib_per_device=tpu.hbm_gib_per_device,
    )


def test_every_generation_has_as_many_devices_a_chip_as_jax_shows():
    """In a process of its own, since libtpu is one a process and locks itself."""
    assert SHAPES.keys() == GENERATIONS.keys()
    slices = [resolved(*shape) for shape in SHAPES.values()]
    asked = json.dumps([chips(tpu).model_dump() for tpu in slices])
    answer = subprocess.run(
        [sys.executable, "-c", ASK, asked],
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    seen = json.loads(answer.stdout)
    assert dict(zip(SHAPES, seen, strict=True)) == {
        tpu.generation.name: tpu.devices for tpu in slices
    }
