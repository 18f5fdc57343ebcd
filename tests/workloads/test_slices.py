from dataclasses import replace
from types import SimpleNamespace

import jax
import pytest

from tests.workloads.simulated import CONTRACT
from workloads.errors import UserError
from workloads.slices import check_devices, idle_slices, most_whole


@pytest.fixture
def seen(monkeypatch):
    """Devices as on a TPU: two slices of two hosts of four chips, as one of the hosts sees them."""
    devices = [SimpleNamespace(platform="tpu", slice_index=index // 8) for index in range(16)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "device_count", lambda: len(devices))
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    monkeypatch.setattr("workloads.versions.check_host", lambda: None)
    return devices


@pytest.fixture
def idle(monkeypatch):
    """Numbers of whole and idle slices as Ray tells them, one after the other; the last stays."""
    told = []

    def tell(_contract):
        return told.pop(0) if len(told) > 1 else told[0]

    monkeypatch.setattr("workloads.slices.idle_slices", tell)
    monkeypatch.setattr("workloads.slices._misnumbered", lambda _contract: [])
    monkeypatch.setattr("time.sleep", lambda _s: None)
    return told


@pytest.mark.parametrize(
    ("seen", "taken"),
    [
        ([4], 4),
        ([0, 0, 2, 3, 3], 3),  # one after the other, as hosts become idle; the last is not there
        ([1, 1, 2, 4], 1),  # too few at first, and no more for a while
        ([2, 4], 4),
        ([9], 4),  # there are more in the cluster than are the run's
    ],
)
def test_an_elastic_run_takes_all_slices_that_are_there(idle, seen, taken):
    idle[:] = seen
    assert most_whole(of_slices(4), 1, 60).slices == taken


def test_an_elastic_run_without_its_fewest_slices_waits_and_gives_up(idle):
    idle[:] = [1]
    with pytest.raises(
        UserError, match=r"1 of 2 slice\(s\) TPU-V5P 2x2x2 whole and idle after 0 s"
    ):
        most_whole(of_slices(4), 2, 0)


def of_slices(count):
    return replace(CONTRACT, slices=count)


@pytest.mark.usefixtures("seen")
def test_two_slices_are_two_slices(monkeypatch):
    monkeypatch.setenv("MEGASCALE_NUM_SLICES", "2")
    check_devices(of_slices(2))


def test_slices_that_do_not_know_of_each_other_are_refused(seen, monkeypatch):
    monkeypatch.setenv("MEGASCALE_NUM_SLICES", "2")
    for device in seen:
        device.slice_index = 0
    with pytest.raises(UserError, match="JAX sees 1 slices, but slice drill has 2"):
        check_devices(of_slices(2))


@pytest.mark.parametrize("devices", [4, 8])
def test_a_host_of_tpu7x_has_two_devices_a_chip(seen, monkeypatch, devices):
    """Four chips, whose eight devices JAX sees; or half of them, which is not what was declared."""
    monkeypatch.setattr(jax, "process_count", lambda: 1)
    monkeypatch.setattr(jax, "local_device_count", lambda: devices)
    del seen[devices:]
    host = replace(CONTRACT, hosts=1, devices_per_chip=2)
    if devices == host.chips_per_host * 2:
        check_devices(host)
        return
    with pytest.raises(UserError) as caught:
        check_devices(host)
    declared = (
        "check the machine type and topology that were declared, with 8 devices (4 chips of 2) a "
        "host"
    )
    assert caught.value.faults == (
        f"JAX sees 4 devices, but slice drill has 8; {declared}",
        f"JAX sees 4 devices on this host, but slice drill has 8; {declared}",
    )


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize(("variable", "slices"), [("3", 2), ("2", 1)])
def test_a_number_of_slices_that_is_not_the_declared_one_is_refused(monkeypatch, variable, slices):
    """libtpu would wait for slices that are not coming."""
    monkeypatch.setenv("MEGASCALE_NUM_SLICES", variable)
    monkeypatch.setattr("jax.devices", lambda: pytest.fail("JAX would wait for ever"))
    with pytest.raises(UserError, match=rf"is {variable} in a worker's environment, but slice dri"):
        check_devices(of_slices(slices))


def nodes(slices):
    """As ray.nodes() tells them."""
    pod_type = {"ray.io/tpu-pod-type": CONTRACT.pod_type}
    return [
        {
            "NodeID": f"{name}-{number}",
            "Alive": True,
            "Labels": {
                "ray.io/tpu-slice-name": name,
                "ray.io/tpu-worker-id": f"{number}",
                **pod_type,
            },
            "NodeManagerHostname": f"{name}-{number}",
            "NodeManagerAddress": "10.0.0.1",
        }
        for name, hosts in slices.items()
        for number in range(hosts)
    ]


@pytest.mark.parametrize(
    ("busy", "leaving", "idle"),
    [
        ([], [], 2),
        (["a-0", "a-1"], [], 1),  # held by a program
        (["b-1"], [], 1),  # something is on one of its hosts
        ([], ["b-0"], 1),  # about to go
        (["a-0"], ["a-1"], 1),
        (["a-1", "b-0"], [], 0),
    ],
)
def test_a_slice_is_idle_when_all_chips_of_all_its_hosts_are_free(monkeypatch, busy, leaving, idle):
    """Ray's report has no TPU for a host of which no chip is free (seen in 2.60)."""
    there = nodes({"a": 2, "b": 2, "c": 1})
    free = {one["NodeID"]: {"CPU": 8.0, "TPU": 4.0} for one in there}
    for name in busy:
        del free[name]["TPU"]
    monkeypatch.setattr("ray.nodes", lambda: there)
    monkeypatch.setattr("ray._private.state.available_resources_per_node", lambda: free)
    monkeypatch.setattr(
        "ray._private.state.state.get_draining_nodes", lambda: dict.fromkeys(leaving, 0)
    )
    assert idle_slices(CONTRACT) == idle
