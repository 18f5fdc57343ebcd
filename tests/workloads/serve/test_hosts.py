"""Replicas over several hosts, on real Ray Serve: two simulated v6e 2x4 of two hosts each."""

import asyncio
import contextlib
import sys
from typing import Any

import psutil
import pytest
import ray
from openai import APIStatusError
from ray import serve

from tests.workloads.serve.replicas import (
    MESH,
    PROMPTS,
    SETTINGS,
    WAIT_S,
    connected,
    crowd,
    deployed,
    eventually,
    free_chips,
    greedy,
    host_processes,
    replicas_running,
    reservations,
    right_answers,
)
from workloads.contract import SliceContract
from workloads.errors import UserError
from workloads.serve import hosts, reservation

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CONTRACT = SliceContract(
    name="chat",
    slices=2,
    generation="v6e",
    machine_type="ct6e-standard-4t",
    topology="2x4",  # which Ray takes for one host of 8 chips, if it is not told
    hosts=2,
    chips_per_host=4,
    devices_per_chip=1,
    hbm_gib_per_chip=32,
    bf16_tflops_per_chip=918,
    accelerator_type="TPU-V6E",
    pod_type="v6e-8",
)


@pytest.fixture(scope="module")
def tpu(tmp_path_factory):
    # Workers do not import tests.
    with connected(tmp_path_factory, CONTRACT, 2, sys.modules[__name__]) as tpu:
        yield tpu


@pytest.fixture(scope="module")
def client(tpu, tiny_folder):
    assert tpu
    with deployed(tiny_folder, CONTRACT) as client:
        yield client


@pytest.fixture(scope="module")
def expected(tiny_folder, devices):
    return right_answers(tiny_folder, devices)


def test_each_replica_holds_one_slice_whole(tpu, client):
    assert client.models.list().data[0].id == "chat"
    ids = [node.node_id for node in tpu.nodes]
    held = list(reservations().values())
    assert sorted(held, key=sorted) == sorted([set(ids[:2]), set(ids[2:])], key=sorted)
    assert free_chips() == 0


def test_answers_are_those_of_one_process_with_all_devices(client, expected):
    answers = crowd(client)
    assert answers == [expected[prompt] for prompt in PROMPTS * 2]
    assert len(set(answers)) > 1


def test_a_lost_host_takes_its_replica_and_the_other_goes_on_answering(tpu, client, expected):
    lost = next(name for name, nodes in reservations().items() if tpu.nodes[3].node_id in nodes)
    tpu.lose_host(3)
    failed = 0
    for _ in range(20):
        try:
            assert greedy(client, PROMPTS[0]) == expected[PROMPTS[0]]
        except APIStatusError:
            failed += 1
    assert failed <= 2  # those that the lost replica had
    eventually(lambda: lost not in reservations(), "the lost replica's slice is given back")
    tpu.bring_back_host(3)
    eventually(lambda: replicas_running() == 2, "a new replica on the mended slice")
    assert free_chips() == 0
    assert crowd(client) == [expected[prompt] for prompt in PROMPTS * 2]


def test_what_is_under_way_ends_whole_and_then_nothing_is_left(client, expected):
    """The stream has begun when the application is deleted."""
    text = PROMPTS[0]
    stream = client.completions.create(
        model="chat", prompt=text, temperature=0, max_tokens=20, stream=True
    )
    chunks = [next(stream)]
    serve.delete("chat", _blocking=False)
    chunks += stream
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected[text]
    eventually(lambda: free_chips() == 16, "all chips are free")
    assert reservations() == {}
    eventually(lambda: not host_processes("0") + host_processes("1"), "all processes have ended")
    with pytest.raises(APIStatusError):
        greedy(client, text)


class Replica:
    """As Serve places one, without Serve."""

    def reserve(self, timeout_s):
        reservation.reserve(CONTRACT, timeout_s)

    def step(self, folder, step_timeout_s):
        hosts.STEP_TIMEOUT_S = step_timeout_s
        held = reservation.reserve(CONTRACT)
        try:
            rows = hosts.Hosts(held, CONTRACT, folder, SETTINGS, MESH)
            rows.warm_up()
            asyncio.run(rows.check())
            while True:
                rows.step()
        finally:
            held.shutdown()  # Ray does so for a replica of Serve, which belongs to no driver


def replica() -> Any:
    held: dict[str, float] = {"TPU-v6e-8-head": 1}
    return ray.remote(Replica).options(num_cpus=0.1, resources=held).remote()


def test_a_slice_that_is_not_whole_is_waited_for_and_then_named(tpu):
    tpu.lose_host(1)
    tpu.lose_host(3)
    try:
        with pytest.raises(UserError, match="1 are there, and not all chips are free after 2 s"):
            ray.get(replica().reserve.remote(2), timeout=60)
    finally:
        tpu.bring_back_host(1)
        tpu.bring_back_host(3)
    assert reservations() == {}


@pytest.mark.usefixtures("tpu")
def test_a_host_that_hangs_ends_the_step_within_its_limit(tiny_folder):
    one = replica()
    steps = one.step.remote(tiny_folder, step_timeout_s=10)
    eventually(
        lambda: [p for p in host_processes("1") if p.cmdline()[0].endswith(".step")], "steps"
    )
    (host,) = host_processes("1")
    host.suspend()
    with pytest.raises(UserError, match="when asked for a step for which it had 10 s") as caught:
        ray.get(steps, timeout=WAIT_S)
    assert "host 1 of slice-" in str(caught.value)
    with contextlib.suppress(psutil.NoSuchProcess):  # Ray may have been quicker
        host.kill()
    ray.kill(one)
    eventually(lambda: free_chips() == 16, "all chips are free")
