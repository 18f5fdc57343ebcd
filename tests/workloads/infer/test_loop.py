"""The pieces of the loop that need no slice: reading ahead, the clock, what hosts agree upon."""

import threading

import pytest

from workloads.errors import UserError
from workloads.infer.loop import Clock, _agreed, ahead
from workloads.model.config import ModelError


def test_one_part_is_prepared_while_another_is_computed_and_no_more():
    begun = [threading.Event() for _ in range(5)]

    def prepare(item):
        begun[item].set()
        return item

    seen = []
    for item in ahead(range(5), prepare):
        seen.append(item)
        assert all(event.wait(30) for event in begun[: item + 2])
        assert not any(event.is_set() for event in begun[item + 2 :])
    assert seen == [0, 1, 2, 3, 4]


def test_what_cannot_be_read_ends_the_loop_at_its_place():
    def prepare(item):
        if item == 2:
            raise EOFError("ends before row 3")
        return item

    seen = []
    with pytest.raises(EOFError, match="ends before row 3"):
        seen.extend(ahead([0, 1, 2, 3], prepare))
    assert seen == [0, 1]
    assert [*ahead([], prepare)] == []


def test_the_rate_is_that_of_all_parts_but_the_first(monkeypatch):
    now = iter([100.0, 102.0, 106.0])
    monkeypatch.setattr("workloads.infer.loop.monotonic", lambda: next(now))
    clock = Clock(28)
    assert clock.lap(10) == "10 of 28 rows"
    assert clock.rows_per_s() is None
    assert clock.lap(10) == "20 of 28 rows  rows/s 5.0"
    assert clock.lap(8) == "28 of 28 rows  rows/s 3.0"
    assert clock.rows_per_s() == 3.0


@pytest.mark.parametrize("error", [UserError("JAX sees 3"), ModelError("x", ["is damaged"])])
def test_a_host_that_cannot_load_the_model_tells_why(error):
    def load():
        raise error

    with pytest.raises(UserError) as refusal:
        _agreed(load, "/model")
    assert refusal.value.faults == tuple(str(error).splitlines())
