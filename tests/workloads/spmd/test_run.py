"""What the driver makes of what its hosts tell: one cause, and no wait without an end."""

import pytest
from ray.exceptions import ActorDiedError

from workloads.hosts import Host
from workloads.slice_group import Member
from workloads.spmd import run
from workloads.spmd.host import Ended
from workloads.spmd.run import Failure, _Watch


class Stream:
    """What a host yields, each at its second; then nothing more, or the end."""

    def __init__(self, *items, hangs=False):
        self.items, self.hangs = [*items], hangs

    def at(self):
        if self.items:
            return self.items[0][0]
        return float("inf") if self.hangs else 0.0

    def __next__(self):
        if not self.items:
            raise StopIteration
        return self.items.pop(0)[1]


class Ray:
    """Its `wait` and `get` on a clock that only waiting moves."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now

    def wait(self, streams, *, num_returns, timeout):
        assert num_returns == 1
        first = min(streams, key=Stream.at)
        if first.at() > self.now + timeout:
            self.now += timeout
            return [], streams
        self.now = max(self.now, first.at())
        return [first], []

    def get(self, item):
        if isinstance(item, Exception):
            raise item
        return item


@pytest.fixture
def watch(monkeypatch):
    """How a program on such hosts ends, and when."""

    def until_ended(*streams, quiet_limit_s=100):
        ray = Ray()
        monkeypatch.setattr(run, "ray", ray)
        monkeypatch.setattr(run, "time", ray)
        group = [Member(Host("s-0", i, f"h{i}", "10.0.0.1"), 0, None) for i in range(len(streams))]
        return _Watch(group, streams, quiet_limit_s).until_ended(), ray.now

    return until_ended


def test_a_program_ends_well_when_it_has_on_all_hosts(watch, capsys):
    first = Stream((1, ["step 1"]), (5, ["step 2"]), (9, Ended(returned=3)))
    ended, now = watch(first, Stream((50, Ended())))
    assert (ended.returned, now) == (3, 50)
    assert capsys.readouterr().out == "raytpu | step 1\nraytpu | step 2\n"


def test_of_several_that_fail_the_first_by_their_clocks_is_the_cause(watch):
    """The other one fails because of it, and its word may be here sooner."""
    because = Ended("XlaRuntimeError: connection closed by peer", at_s=7.2)
    cause = Ended("ValueError: no batch left", last_lines=("Traceback", "ValueError"), at_s=7.1)
    failure, _ = watch(Stream((7.3, because)), Stream((7.4, cause)))
    fault = "host 1 of s-0 (h1, 10.0.0.1): ValueError: no batch left"
    assert failure == Failure((fault,), ("Traceback", "ValueError"), again=True)


def test_the_others_are_given_a_moment_and_no_more(watch):
    failure, now = watch(Stream(hangs=True), Stream((7, Ended("it broke", at_s=7)), hangs=True))
    assert "host 1 of s-0" in failure.faults[0]
    assert now == 7 + run.GRACE_S


def test_a_lost_host_is_a_failure_that_may_be_tried_again(watch):
    failure, _ = watch(Stream((3, ActorDiedError())), Stream(hangs=True))
    assert failure.again
    assert (
        "host 0 of s-0 (h0, 10.0.0.1): its process was lost, or the whole host"
        in (failure.faults[0])
    )


def test_what_the_user_has_to_mend_is_not_tried_again(watch):
    faults = ("program: there is no module a; correct the name", "second")
    failure, _ = watch(Stream((3, Ended("x", faults=faults, at_s=3))))
    assert failure == Failure(faults, (), again=False)


def test_a_program_that_says_nothing_is_taken_for_hung_and_its_hosts_are_named(watch):
    silent = Stream((1, ["waiting"]), hangs=True)
    failure, now = watch(silent, Stream((2, Ended())), quiet_limit_s=20)
    assert now == 2 + 20
    assert failure.again
    (fault,) = failure.faults
    assert fault.startswith("no line for 20 s, and no end on host 0 of s-0 (h0, 10.0.0.1); see")
