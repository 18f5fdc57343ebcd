"""A trace of declared steps, read back."""

import json

import jax
import jax.numpy as jnp
import pytest
from jax.profiler import ProfileData

from workloads.settings import ProfileSettings, TrainMesh, TrainSettings
from workloads.train.profile import Profile

pytestmark = pytest.mark.usefixtures("devices")
PLACE = "profile/plugins/profile/steps-3-5/host-0.xplane.pb"


def run(profile, steps):
    @jax.jit
    def multiply_and_add(x):
        return x @ x + 1

    x = jnp.zeros((64, 64))
    for number in steps:
        with profile.step(number):
            x = multiply_and_add(x)
        profile.after(number, x, last=number == steps[-1])


def traced(path):
    """Numbers of the steps in a trace, and the names of all that ran."""
    data = ProfileData.from_file(str(path))
    events = [event for plane in data.planes for line in plane.lines for event in line.events]
    numbers = [dict(event.stats)["step_num"] for event in events if event.name == "step"]
    return numbers, {event.name for event in events}


def test_the_declared_steps_are_traced_and_no_other(tmp_path):
    run(Profile(ProfileSettings(first_step=3), str(tmp_path)), range(1, 9))
    numbers, names = traced(tmp_path / PLACE)
    assert numbers == [3, 4, 5]
    assert any("multiply_and_add" in name for name in names)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["host-0.xplane.pb"]


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [(range(1, 5), [3, 4]), (range(4, 9), [4, 5])],
    ids=["a stop notice ends it", "a run that resumes"],
)
def test_of_steps_that_an_attempt_has_in_part_that_part_is_traced(tmp_path, attempt, expected):
    run(Profile(ProfileSettings(first_step=3), str(tmp_path)), attempt)
    assert traced(tmp_path / PLACE)[0] == expected


def test_without_a_profile_nothing_is_written(tmp_path):
    run(Profile(None, str(tmp_path)), range(1, 4))
    assert not [*tmp_path.iterdir()]


def test_tracing_changes_neither_the_run_nor_what_a_job_without_it_is_told():
    plain = TrainSettings(mesh=TrainMesh(), steps=9, warmup_steps=1, global_batch=8)
    profile = ProfileSettings(first_step=3)
    assert plain.model_copy(update={"profile": profile}).learned() == plain.learned()
    assert "profile" not in json.loads(plain.model_dump_json())
