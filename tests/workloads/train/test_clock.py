"""Where a run's time goes: by a clock that the test turns."""

from types import SimpleNamespace

import pytest

from workloads.train import clock as clocks
from workloads.train.clock import Clock, Work

WORK = Work(tokens=1000, flops=2e9, peak_flops_per_s=1e10)
ON_CPUS = Work(tokens=1000, flops=2e9, peak_flops_per_s=None)


@pytest.fixture
def time(monkeypatch):
    """Both clocks of the machine, which go on when the test says so."""
    state = SimpleNamespace(now=1000.0)

    def pass_(seconds):
        state.now += seconds

    fake = SimpleNamespace(monotonic=lambda: state.now, time=lambda: state.now)
    monkeypatch.setattr(clocks, "time", fake)
    return pass_


def test_a_line_tells_how_the_steps_since_the_last_went(time):
    clock = Clock(WORK, began_unix_s=1000.0)
    time(5)
    clock.lap("start")
    time(11)
    clock.steps(1)
    time(4)
    pace = clock.steps(10)
    assert (pace.step_s, pace.tokens_per_s) == (0.4, 2500)
    assert pace.utilisation == pytest.approx(0.5)  # 10 steps of 2e9 in 4 s, of 1e10 a second
    assert pace.goodput == pytest.approx(4 / 20)
    assert str(pace) == "tokens/s 2500  step 400 ms  MFU 50.0 %  goodput 20.0 %"


def test_of_cpus_in_place_of_chips_no_utilisation_is_told(time):
    clock = Clock(ON_CPUS, began_unix_s=1000.0)
    time(4)
    clock.steps(1)
    time(4)
    pace = clock.steps(10)
    assert pace.utilisation is clock.utilisation() is None
    assert str(pace) == "tokens/s 2500  step 400 ms  goodput 50.0 %"
    assert "utilisation" not in pace.metrics()


def test_what_is_no_step_is_not_good(time):
    """Waiting for a slice, starting, compiling, saving, evaluating, and waiting for rows."""
    clock = Clock(WORK, began_unix_s=960.0)
    time(10)
    clock.lap("start")
    time(10)
    clock.steps(1)

    def rows():
        for _ in range(4):
            time(1)
            yield None

    for _ in clock.fetch(rows()):
        time(2)
    clock.steps(4)
    time(13)
    clock.lap("checkpoint")
    time(15)
    clock.lap("evaluate")
    assert clock.goodput() == pytest.approx(8 / 100)
    assert clock.waited() == pytest.approx(4 / 12)


def test_steps_that_were_lost_are_not_good(time):
    """An attempt ends after 3 laps, of which a checkpoint holds 2; the next starts 20 s later."""
    first = Clock(WORK, began_unix_s=1000.0)
    time(10)
    first.steps(1)
    time(10)
    first.steps(10)
    time(10)
    first.steps(10)
    saved_s = first.counted_s
    time(10)
    first.steps(10)
    time(20)
    second = Clock(WORK, began_unix_s=1000.0)
    second.counted_s = saved_s
    time(10)
    second.steps(1)
    time(30)
    pace = second.steps(30)
    assert pace.goodput == pytest.approx((10 + 10 + 30) / 100)
