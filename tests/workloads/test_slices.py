from dataclasses import replace
from types import SimpleNamespace

import jax
import pytest

from tests.workloads.simulated import CONTRACT
from workloads.errors import UserError
from workloads.slices import check_devices


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


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize(("variable", "slices"), [("3", 2), ("2", 1)])
def test_a_number_of_slices_that_is_not_the_declared_one_is_refused(monkeypatch, variable, slices):
    """libtpu would wait for slices that are not coming."""
    monkeypatch.setenv("MEGASCALE_NUM_SLICES", variable)
    monkeypatch.setattr("jax.devices", lambda: pytest.fail("JAX would wait for ever"))
    with pytest.raises(UserError, match=rf"is {variable} in a worker's environment, but slice dri"):
        check_devices(of_slices(slices))
