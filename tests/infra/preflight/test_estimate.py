"""Step times against arithmetic by hand."""

import math
from typing import Any

import pytest

from infra.preflight.estimate import estimate
from infra.tpu.catalog import GENERATIONS
from infra.tpu.slice import SliceSpec, TpuSlice
from infra.tpu.speed import SPEEDS
from workloads.preflight.program import Collective, Measured

# The JAX team's book on scaling, "TPU specs": bfloat16 FLOP/s, HBM bytes/s, and bytes/s of one
# link in both directions, of which a chip has one to each side along an axis.
BOOK = {
    "v4": (2.75e14, 1.2e12, 9.0e10),
    "v5e": (1.97e14, 8.1e11, 9.0e10),
    "v5p": (4.59e14, 2.8e12, 1.8e11),
    "v6e": (9.20e14, 1.6e12, 1.8e11),
    "tpu7x": (2.3e15, 7.4e12, 1.8e11),
}


def tpu(machine_type="ct6e-standard-4t", topology="4x4"):
    spec = SliceSpec(name="s", machine_type=machine_type, topology=topology)
    return TpuSlice.resolve(spec)


def step(*collectives, flops=0.0, traffic_bytes=0.0, on=None) -> Any:
    measured = Measured(
        argument_bytes=1,
        hbm_bytes=1,
        limit_bytes=1,
        flops=flops,
        traffic_bytes=traffic_bytes,
        collectives=tuple(
            Collective.model_validate(
                {"kind": kind, "group": group, "count": 1, "payload_bytes": payload}
            )
            for kind, group, payload in collectives
        ),
    )
    return estimate(measured, on or tpu())


def test_every_generation_has_speeds_that_the_jax_teams_book_has_too():
    """The book rounds, and takes a tenth off the links."""
    assert SPEEDS.keys() == GENERATIONS.keys() == BOOK.keys()
    for name, (flops, hbm, link) in BOOK.items():
        speed = SPEEDS[name]
        assert speed.flops_per_s == pytest.approx(flops, rel=0.02)
        assert speed.hbm_bytes_per_s == pytest.approx(hbm, rel=0.03)
        assert 0.9 * speed.axis_bytes_per_s == pytest.approx(link)


def test_the_longest_of_three_sets_the_time_and_leaves_the_matrix_units_waiting():
    """918 TFLOP take a v6e chip a second, 3276 GB of HBM two."""
    compute = step(flops=918e12, traffic_bytes=819e9)
    assert (compute.step_s, compute.bound_by, compute.utilisation) == (1.0, "compute", 1.0)
    memory = step(flops=918e12, traffic_bytes=3276e9)
    assert (memory.step_s, memory.bound_by, memory.utilisation) == (2.0, "HBM", 0.5)


@pytest.mark.parametrize(
    ("kind", "group", "seconds"),
    [
        ("all-reduce", 4, 2 * 3 / 4),
        ("all-gather", 4, 3 / 4),
        ("reduce-scatter", 4, 3 / 4),
        ("all-to-all", 4, 3 / 4),
        ("collective-permute", 2, 1.0),
        ("all-reduce", 16, 2 * 15 / 16 / 2),  # the whole slice: both axes
        ("all-reduce", 1, 0.0),
    ],
)
def test_a_ring_carries_all_but_a_chips_own_part(kind, group, seconds):
    """200 GB, as much as one axis of v6e brings a chip in a second."""
    found = step((kind, group, 200_000_000_000))
    assert found.ici_s == pytest.approx(seconds)
    assert found.dcn_s == 0.0


def test_the_network_between_slices_is_counted_apart():
    """v6e has 100 Gbit/s a chip: 12.5 GB. Of an all-reduce by two, each sends as much as it has."""
    found = step(("dcn", 2, 25_000_000_000))
    assert (found.ici_s, found.dcn_s, found.bound_by) == (0.0, 2.0, "network")


def test_a_speed_that_is_not_known_is_left_out_and_said_so():
    found = step(("dcn", 2, 25_000_000_000), flops=275e12, on=tpu("ct4p-hightpu-4t", "2x2x4"))
    assert found.dcn_s is None
    assert math.isclose(found.step_s, 1.0)


def test_each_of_the_two_devices_of_a_chip_has_half_of_its_peaks():
    """A chip of tpu7x: 2307 TFLOP/s, 7380 GB/s of HBM, 1200 GB/s over three axes, 12.5 of network.

    200 GB are what one axis brings a chip in a second, and a device in two.
    """
    ironwood = tpu("tpu7x-standard-4t", "2x2x2")
    found = step(flops=2307e12, traffic_bytes=7380e9, on=ironwood)
    assert (found.compute_s, found.hbm_s) == pytest.approx((2.0, 2.0))
    axis = step(("all-gather", 4, 200_000_000_000), on=ironwood)
    assert axis.ici_s == pytest.approx(2 * 3 / 4)
    whole = step(("all-gather", 16, 200_000_000_000), on=ironwood)  # all axes: the 16 devices
    assert whole.ici_s == pytest.approx(2 * 15 / 16 / 3)
    assert step(("dcn", 2, 12_500_000_000), on=ironwood).dcn_s == pytest.approx(2.0)


def test_what_was_not_compiled_has_no_time():
    too_large = Measured(argument_bytes=9, hbm_bytes=None, limit_bytes=1)
    assert estimate(too_large, tpu()) is None
