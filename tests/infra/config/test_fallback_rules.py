"""Fallbacks of a run's slice: where the run can go, and what keeps it from going there."""

import pytest

from infra.config import TrainSpec
from tests.infra.config.stack import faults, on_gke, only, read, remarks
from workloads.train.choices import settings_on

V5E = {"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}
SMALL = {"machine_type": "ct5lp-hightpu-4t", "topology": "2x2"}
WIDE = {"layers": 48, "hidden_size": 8192, "intermediate_size": 22_016, "attention_heads": 64}


def falls_back(*shapes, **changes):
    """The sound stack, whose run on a v6e 4x4 may take these shapes."""
    return on_gke(slices__0__fallback=[*shapes], **changes)


@pytest.mark.parametrize(
    "shape", [V5E, SMALL, {"machine_type": "ct6e-standard-4t", "topology": "4x8"}]
)
def test_a_run_can_go_where_its_batch_and_its_tensor_axis_divide_over_the_chips(shape):
    assert faults(falls_back(shape)) == []


# Changes of the run, the fallback, its place, and the words that name both.
REFUSED = [
    (
        {"mesh": {"data": 2, "tensor": 8}, "model": {"key_value_heads": 8}},
        SMALL,
        "slices[0].fallback[0]",
        "are no multiple of raytpu:workloads[1].mesh.tensor, which is 8",
    ),
    (
        {"global_batch": 48},
        {"machine_type": "ct5lp-hightpu-4t", "topology": "4x8"},
        "slices[0].fallback[0]",
        "raytpu:workloads[1].global_batch is 48, which does not divide over the 32 chips of 4x8",
    ),
    (
        {"mesh": {"fsdp": 16}, "model": WIDE},
        V5E,
        "slices[0].fallback[0]",
        "GiB of each chip, and one of v5e has 16",
    ),
    (
        {},
        {"machine_type": "ct5lp-hightpu-4t", "topology": "2x4"},
        "slices[0]",
        "2x4 on ct5lp-hightpu-4t is one host to Ray Train, which for workload 'pretrain' would mix",
    ),
    (
        {"fallback_after": "12h"},
        V5E,
        "workloads[1].fallback_after",
        "12h for each of 2 shapes leaves no time to run: deadline is 1d",
    ),
]


@pytest.mark.parametrize(("changes", "shape", "place", "words"), REFUSED)
def test_where_a_run_cannot_go_is_refused_and_both_are_named(changes, shape, place, words):
    run = {f"workloads__1__{key}": value for key, value in changes.items()}
    line = only([one for one in faults(falls_back(shape, **run)) if "vocab" not in one], place)
    assert words in line


def test_a_program_of_several_slices_has_no_use_for_single_hosts():
    host = {"machine_type": "ct5lp-hightpu-8t", "topology": "2x4"}
    stack = falls_back(host, slices__0__count=2, workloads__1__mesh={"data": 32})
    line = only(faults(stack), "slices[0].fallback[0]")
    assert "2 times 2x4 on ct5lp-hightpu-8t is 2 hosts, and the one program of" in line


def test_from_chips_of_two_devices_a_run_goes_on_with_its_batch_and_a_mesh_of_chips():
    """From 16 devices of 8 chips to 8 chips of one device: half of the copies, in two parts."""
    shape = {"machine_type": "ct6e-standard-8t", "topology": "2x4"}
    ironwood = {"name": "train", "machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}
    mesh = {"data": 4, "fsdp": 2, "tensor": 2}
    stack = on_gke(slices__0={**ironwood, "fallback": [shape]}, workloads__1__mesh=mesh)
    assert faults(stack) == []
    config = read(stack)
    run, (there,) = config.workload("pretrain"), config.slice("train").fallback
    assert isinstance(run, TrainSpec)
    moved = settings_on(run.settings(), there.contract())
    assert (moved.mesh.data, moved.mesh.fsdp, moved.mesh.tensor) == (2, 2, 2)
    assert (moved.global_batch, moved.gradient_accumulation_steps) == (run.global_batch, 2)
    assert moved.learned() == run.settings().learned()


def test_the_devices_of_a_fallback_are_told_with_its_chips():
    shape = {"machine_type": "tpu7x-standard-4t", "topology": "2x2x4"}
    line = only(faults(falls_back(shape, workloads__1__global_batch=48)), "slices[0].fallback[0]")
    assert "which does not divide over the 32 devices (16 chips of 2) of 2x2x4" in line


# Copies of a 4x4, the fewest, the batch, and what is said.
FEWER = [
    (3, 1, 96, None),
    (3, 2, 96, None),
    (2, 2, 32, None),
    (3, 1, 48, "leaves 2 slices, over whose 32 chips raytpu:workloads[1].global_batch of 48 does"),
    (3, 1, 48, "not divide; use a multiple of 96"),
    (2, 3, 32, "3 is more than the 2 of slice 'train'; use 1 to 2"),
    (2, 0, 32, "use 1 or more"),
]


@pytest.mark.parametrize(("count", "least", "batch", "words"), FEWER)
def test_a_run_goes_on_with_fewer_slices_if_its_batch_divides_over_each_number(
    count, least, batch, words
):
    run = {"workloads__1__min_slices": least, "workloads__1__global_batch": batch}
    mesh = {"data": 16 * count}
    found = faults(on_gke(slices__0__count=count, workloads__1__mesh=mesh, **run))
    if words is None:
        assert found == []
    else:
        assert words in only(found, "workloads[1].min_slices")


def test_a_run_has_one_way_out():
    stack = falls_back(V5E, workloads__1__min_slices=1)
    line = only(faults(stack), "workloads[1].min_slices")
    assert "its slice has a fallback to go to; leave min_slices out, or the fallback" in line


def test_without_a_fallback_nothing_is_said_of_it():
    config = read(on_gke(workloads__1__fallback_after="20m"))
    assert config.slice("train").fallback == ()
    assert not [line for line in remarks(on_gke()) if "fallback" in line]
