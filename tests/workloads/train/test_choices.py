"""The same run on another slice: a mesh for its chips, and the same losses from it."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.simulated import CONTRACT
from workloads.errors import UserError
from workloads.model import sharding
from workloads.settings import TrainMesh, TrainSettings
from workloads.train.choices import settings_on
from workloads.train.step import make_trainer


def slices(hosts, count=1, chips_per_host=4, devices_per_chip=1):
    there = {"chips_per_host": chips_per_host, "devices_per_chip": devices_per_chip}
    return replace(CONTRACT, hosts=hosts, slices=count, **there)


def declared(mesh, batch=64, accumulated=1):
    return TrainSettings(
        mesh=TrainMesh(**mesh),
        steps=9,
        warmup_steps=1,
        global_batch=batch,
        gradient_accumulation_steps=accumulated,
        dtype="float32",
    )


# By hand: mesh and parts of a batch of 64 as declared, the other slices, mesh and parts there.
CASES = [
    # Half the chips: each device would have twice the rows, so they come in two parts.
    ({"data": 4, "fsdp": 4, "tensor": 2}, 1, slices(4), (2, 4, 2), 2),
    # Twice the chips: more copies, and no more parts.
    ({"data": 2, "tensor": 4}, 1, slices(4), (4, 1, 4), 1),
    # What was in two parts to spare memory is in one where the rows are half as many.
    ({"data": 2, "tensor": 4}, 2, slices(4), (4, 1, 4), 1),
    # All 16 chips shared one copy; on 8 they are what there is.
    ({"fsdp": 16}, 1, slices(2), (1, 8, 1), 2),
    # Three times the chips do not share out the 8 parts of a copy, but 4 of them.
    ({"fsdp": 8}, 1, slices(3), (3, 4, 1), 1),
    # Two small slices for a large one: fsdp stays within a slice.
    ({"fsdp": 16}, 1, slices(2, count=2), (2, 8, 1), 1),
    # The same chips on other hosts: nothing changes.
    ({"data": 2, "fsdp": 2, "tensor": 2}, 4, slices(1, chips_per_host=8), (2, 2, 2), 4),
    # As many chips, of two devices each: twice the copies.
    ({"data": 2, "tensor": 4}, 2, slices(2, devices_per_chip=2), (4, 1, 4), 1),
    # The 16 devices that shared one copy are those of 8 chips.
    ({"fsdp": 16}, 1, slices(2, devices_per_chip=2), (1, 16, 1), 1),
    # From 32 chips of one device to 8 of two.
    ({"data": 4, "fsdp": 4, "tensor": 2}, 1, slices(2, devices_per_chip=2), (2, 4, 2), 2),
]


@pytest.mark.parametrize(("mesh", "parts", "there", "expected", "parts_there"), CASES)
def test_the_mesh_and_the_parts_of_a_batch_follow_from_the_chips(
    mesh, parts, there, expected, parts_there
):
    made = settings_on(declared(mesh, accumulated=parts), there)
    assert (made.mesh.data, made.mesh.fsdp, made.mesh.tensor) == expected
    assert made.gradient_accumulation_steps == parts_there
    assert made.learned() == declared(mesh).learned()


def test_a_tensor_axis_that_does_not_divide_a_slice_is_refused_by_both_names():
    with pytest.raises(UserError, match=r"mesh\.tensor: 8 does not divide the 4 chips of drill"):
        settings_on(declared({"tensor": 8}), slices(1, count=2))
    with pytest.raises(UserError, match=r"16 does not divide the 8 devices \(4 chips of 2\) of dr"):
        settings_on(declared({"tensor": 16}), slices(1, count=2, devices_per_chip=2))


small = st.sampled_from([1, 2, 4])


@given(
    small,
    small,
    small,
    small,
    st.builds(
        slices,
        st.integers(1, 6),
        st.integers(1, 3),
        devices_per_chip=st.sampled_from([1, 2]),
    ),
    st.integers(1, 4),
)
def test_wherever_it_goes_the_mesh_covers_the_chips_and_a_device_has_no_more_rows_at_once(
    data, fsdp, tensor, parts, there, times
):
    before = declared(
        {"data": data, "fsdp": fsdp, "tensor": tensor}, there.devices * 64 * times, parts
    )
    after = settings_on(before, there)
    assert after.mesh.devices == there.devices
    assert after.mesh.data % there.slices == 0
    rows, rows_there = (
        one.global_batch // (one.mesh.batch_parts * one.gradient_accumulation_steps)
        for one in (before, after)
    )
    assert rows_there <= rows
    whole = after.mesh.batch_parts * after.gradient_accumulation_steps
    assert after.global_batch % whole == 0


@pytest.mark.parametrize("chips", [4, 2])
def test_the_losses_there_are_those_of_the_slice_it_was_written_for(tiny_config, devices, chips):
    shallow = replace(tiny_config, layers=1)
    first = declared({"data": 2, "fsdp": 2, "tensor": 2}, batch=8)
    other = settings_on(first, slices(1, chips_per_host=chips))
    tokens = np.random.default_rng(0).integers(0, 320, (3, 8, 33)).astype(np.int32)

    def losses(settings):
        mesh = sharding.make_mesh(settings.mesh, devices[: settings.mesh.devices])
        trainer = make_trainer(settings, shallow, mesh)
        state, told = trainer.init(), []
        for batch in tokens:
            state, loss = trainer.train(state, jax.device_put(batch, trainer.batch))
            told.append(float(loss))
        return told

    np.testing.assert_allclose(losses(other), losses(first), rtol=2e-5)
