"""What a simulated host is told, apart from real raylets."""

import pytest

from infra.local.ray_node import host_environment
from infra.tpu.slice import SliceSpec, TpuSlice


@pytest.mark.parametrize(
    ("machine_type", "topology", "devices"),
    [
        ("ct6e-standard-4t", "4x4", 4),
        ("ct6e-standard-8t", "2x4", 8),
        ("ct5p-hightpu-4t", "2x2x2", 4),
        ("tpu7x-standard-4t", "2x2x2", 8),
    ],
)
def test_a_simulated_host_has_as_many_devices_as_jax_would_see(machine_type, topology, devices):
    spec = SliceSpec(name="train", machine_type=machine_type, topology=topology)
    told = host_environment(TpuSlice.resolve(spec).contract(), 0, "train-0")
    assert told["XLA_FLAGS"] == f"--xla_force_host_platform_device_count={devices}"
