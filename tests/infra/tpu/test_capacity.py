"""Ways to get capacity: durations, ladders, and the path of a reservation."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from infra.tpu.capacity import (
    LONGEST,
    Duration,
    FlexStart,
    Ladder,
    Reservation,
    Rung,
    Spot,
    Zone,
    written,
)
from infra.tpu.catalog import GENERATIONS

DURATION = TypeAdapter(Duration)
LADDER = TypeAdapter(Ladder)
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TERMS = {
    "on_demand": "on-demand",
    "spot": "spot",
    "flex_start": "flex-start",
    "queued": "queued",
    "reservation": "reservation",
}


@given(st.integers(1, 365), st.sampled_from([*SECONDS]))
def test_a_duration_is_so_many_of_its_unit(number, unit):
    assert DURATION.validate_python(f"{number}{unit}").total_seconds() == number * SECONDS[unit]


@given(st.integers(1, int(LONGEST.total_seconds())))
def test_a_duration_is_written_as_it_is_read(seconds):
    duration = timedelta(seconds=seconds)
    assert DURATION.validate_python(written(duration)) == duration
    assert DURATION.dump_python(duration, mode="json") == written(duration)


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "90s"), (120, "2m"), (5400, "90m"), (86400, "1d"), (604800, "7d")]
)
def test_a_duration_is_written_in_the_largest_unit_that_keeps_it_whole(seconds, text):
    assert written(timedelta(seconds=seconds)) == text


@given(st.text(max_size=6) | st.integers() | st.floats() | st.none() | st.booleans())
def test_nothing_else_is_a_duration(value):
    try:
        found = DURATION.validate_python(value)
    except ValidationError:
        return
    assert isinstance(value, str)
    assert value[-1] in SECONDS
    assert found == timedelta(seconds=int(value[:-1]) * SECONDS[value[-1]])


@given(st.lists(st.sampled_from([*TERMS]), min_size=1, max_size=6))
def test_a_ladder_keeps_its_order(keys):
    said = [{key: {"name": "r"} if key == "reservation" else {}} for key in keys]
    ladder = LADDER.validate_python(said)
    assert [rung.key for rung in ladder] == keys
    assert [rung.kind for rung in ladder] == [TERMS[key] for key in keys]


@given(st.sets(st.sampled_from([*TERMS])))
def test_a_rung_has_exactly_one_kind(keys):
    said = {key: {"name": "r"} if key == "reservation" else {} for key in keys}
    if len(keys) == 1:
        assert Rung.model_validate(said).terms.kind == TERMS[keys.pop()]
    else:
        with pytest.raises(ValidationError):
            Rung.model_validate(said)


def test_flex_start_runs_for_a_week_unless_told_otherwise():
    assert FlexStart().max_run_duration == timedelta(days=7)
    assert FlexStart().queued is False
    assert Spot().zone is None


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({}, "r"),
        ({"project": "acme-shared"}, "projects/acme-shared/reservations/r"),
        ({"block": "b"}, "r/reservationBlocks/b"),
        (
            {"block": "b", "sub_block": "s"},
            "r/reservationBlocks/b/reservationSubBlocks/s",
        ),
        (
            {"project": "acme-shared", "block": "b"},
            "projects/acme-shared/reservations/r/reservationBlocks/b",
        ),
    ],
)
def test_a_reservations_path_is_what_a_node_pool_names(more, path):
    assert Reservation(name="r", **more).path == path


@pytest.mark.parametrize("generation", GENERATIONS.values(), ids=[*GENERATIONS])
def test_every_zone_of_the_catalogue_is_one(generation):
    for zone in (*generation.zones, *generation.flex_start_zones):
        assert TypeAdapter(Zone).validate_python(zone) == zone
    assert len({*generation.zones}) == len(generation.zones) > 0


def test_flex_start_zones_are_zones_of_the_generation():
    for generation in GENERATIONS.values():
        assert {*generation.flex_start_zones} <= {*generation.zones}
        assert generation.flex_start or not generation.flex_start_zones


def test_boot_disks_are_those_that_the_machines_take():
    assert {name: one.boot_disk for name, one in GENERATIONS.items()} == {
        "v4": None,
        "v5e": "pd-balanced",
        "v5p": None,
        "v6e": "hyperdisk-balanced",
        "tpu7x": "hyperdisk-balanced",
    }


@pytest.mark.parametrize("project", ["Oth er", "../x", "acme/other", ""])
def test_the_owner_of_a_reservation_is_a_project(project):
    with pytest.raises(ValidationError):
        Reservation(name="r", project=project)
