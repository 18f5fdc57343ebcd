"""Collectives are verified element by element, and their bandwidths are those of nccl-tests."""

import jax
import jax.numpy as jnp
import pytest

from workloads.check import measure
from workloads.check.measure import OPERATIONS, Timing, collective


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_right_results_are_found_right_on_any_number_of_devices(devices, operation, count):
    timing = collective(devices[:count], operation, size_mib=1, repeats=3)
    assert timing.wrong == {}
    assert timing.devices == count
    assert timing.size_bytes >= 2**20
    assert timing.size_bytes < 2**20 + 4 * count
    assert timing.median_s > 0


def test_a_wrong_part_of_what_is_gathered_names_its_device(devices, monkeypatch):
    """As if link or memory of device 2 flipped a bit on the way to all others."""

    def gather(part):
        gathered = jax.lax.all_gather(part, "all", axis=1, tiled=True)
        return gathered.at[0, 2 * part.shape[1] + 5].add(1.0)

    monkeypatch.setattr(measure, "_gather", gather)
    timing = collective(devices[:4], "all_gather", size_mib=1, repeats=1)
    assert timing.wrong == {device.id: (devices[2].id,) for device in devices[:4]}


def test_a_wrong_sum_names_the_device_that_got_it(devices, monkeypatch):
    def add(part):
        total = jax.lax.psum(part, "all")
        return total.at[0, 0].add(jnp.where(jax.lax.axis_index("all") == 3, 1.0, 0.0))

    monkeypatch.setattr(measure, "_sum", add)
    timing = collective(devices[:4], "all_reduce", size_mib=1, repeats=1)
    assert timing.wrong == {devices[3].id: ()}


@pytest.mark.parametrize(
    ("operation", "devices", "algorithm", "bus"),
    [
        # nccl-tests, doc/PERFORMANCE.md: a sum is 2(n-1)/n of the algorithm's, a gather (n-1)/n.
        ("all_reduce", 4, 50.0, 75.0),
        ("all_gather", 4, 50.0, 37.5),
        ("all_reduce", 2, 50.0, 50.0),
        ("all_gather", 256, 50.0, 49.8046875),
        ("all_reduce", 1, 50.0, 0.0),
    ],
)
def test_bandwidths_are_as_the_field_reports_them(operation, devices, algorithm, bus):
    timing = Timing(operation=operation, devices=devices, size_bytes=10**8, median_s=0.002)
    assert timing.algorithm_gb_per_s == pytest.approx(algorithm)
    assert timing.bus_gb_per_s == pytest.approx(bus)


def test_a_product_is_timed_and_a_wrong_one_raises(devices, monkeypatch):
    assert measure.product_s(devices[0], repeats=2) > 0
    monkeypatch.setattr(jnp, "matmul", lambda a, b: (a @ b).at[0, 0].add(8))
    with pytest.raises(ArithmeticError, match=f"device {devices[1].id} computes a wrong product"):
        measure.product_s(devices[1], repeats=2)
