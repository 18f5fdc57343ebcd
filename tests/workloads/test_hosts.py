"""Hosts of a slice by their numbers: each once, none missing, or named before JAX waits."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.simulated import CONTRACT
from workloads import slices
from workloads.errors import UserError
from workloads.hosts import Host, number_faults, of_nodes

POD = replace(CONTRACT, topology="16x16", hosts=64, pod_type="v6e-256")


def hosts(numbers):
    return [
        Host("big-0", number, f"big-0-{place}", f"10.0.0.{place}")
        for place, number in enumerate(numbers)
    ]


@given(st.permutations(range(64)))
def test_each_number_once_is_sound_in_any_order(numbers):
    assert number_faults(POD, hosts(numbers)) == []


def test_a_number_that_two_pods_have_names_both_and_the_one_that_is_missing():
    """What ai-on-gke 858 describes: 64 hosts, and the webhook gave 17 twice."""
    twice, missing = number_faults(POD, hosts([17 if n == 40 else n for n in range(64)]))
    assert twice == (
        "slice big-0: TPU_WORKER_ID 17: is that of host 17 of big-0 (big-0-17, 10.0.0.17) and of "
        "host 17 of big-0 (big-0-40, 10.0.0.40); delete the pods of that slice, so that all are "
        "numbered anew"
    )
    assert "TPU_WORKER_ID 40: is that of no host of 0 to 63" in missing


def test_a_pod_without_a_number_is_named():
    without, missing = number_faults(POD, hosts([None if n == 3 else n for n in range(64)]))
    assert "host without TPU_WORKER_ID of big-0 (big-0-3, 10.0.0.3)" in without
    assert "TPU_WORKER_ID 3: is that of no host of 0 to 63" in missing


@given(st.lists(st.none() | st.integers(0, 70), min_size=64, max_size=64))
def test_nothing_but_a_permutation_is_sound(numbers):
    sound = sorted(numbers, key=str) == sorted(range(64), key=str)
    assert (number_faults(POD, hosts(numbers)) == []) == sound


@pytest.mark.parametrize("number", [None, 0])
def test_a_slice_of_one_host_needs_no_number(number):
    assert number_faults(replace(CONTRACT, hosts=1), hosts([number])) == []


def node(name, number, *, alive=True, pod_type="v6e-256"):
    labels = {"ray.io/tpu-pod-type": pod_type, "ray.io/tpu-slice-name": name}
    numbered = {} if number is None else {"ray.io/tpu-worker-id": str(number)}
    address = {"NodeManagerHostname": f"{name}-{number}", "NodeManagerAddress": "10.0.0.1"}
    return {"Alive": alive, "NodeID": "f0", "Labels": {**labels, **numbered}, **address}


def test_living_hosts_of_the_shape_are_told_by_slice():
    nodes = [
        *(node("a", 0), node("a", 1, alive=False), node("a", None)),
        *(node("b", 1), node("c", 0, pod_type="v6e-8")),
        {"Alive": True, "NodeID": "head", "Labels": {}},
    ]
    found = of_nodes(POD, nodes)
    assert {name: [host.worker_id for host in hosts] for name, hosts in found.items()} == {
        "a": [0, None],
        "b": [1],
    }


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def pod(monkeypatch):
    """What a driver sees of a slice of 64 hosts: `numbers` of those that are there, by second."""
    clock = Clock()
    monkeypatch.setattr(slices, "time", clock)

    def seen(numbers):
        monkeypatch.setattr(
            "ray.nodes", lambda: [node("big-0", number) for number in numbers(clock.now)]
        )
        monkeypatch.setattr(slices, "idle_slices", lambda _: 1)
        return clock

    return seen


def test_a_job_starts_at_once_on_hosts_that_are_numbered_rightly(pod):
    clock = pod(lambda _: range(64))
    slices.wait_for_slices(POD, 900)
    assert clock.now == 0


def test_a_number_that_two_pods_have_ends_the_job_within_a_minute_and_before_jax(pod):
    clock = pod(lambda _: [17 if n == 40 else n for n in range(64)])
    with pytest.raises(UserError) as error:
        slices.wait_for_slices(POD, 900)
    twice, missing = error.value.faults
    assert "TPU_WORKER_ID 17: is that of host 17 of big-0 (big-0-17" in twice
    assert "TPU_WORKER_ID 40: is that of no host of 0 to 63" in missing
    assert clock.now <= slices.SETTLE_S + 2


def test_a_host_that_was_replaced_may_be_there_twice_for_a_moment(pod):
    """The dying one is still counted, and another host is not there yet."""
    clock = pod(lambda now: [17 if n == 40 and now < 30 else n for n in range(64)])
    slices.wait_for_slices(POD, 900)
    assert 30 <= clock.now < 40
