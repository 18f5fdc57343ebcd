"""The check's process on a host: it says what is there, then joins the others and measures."""

from collections.abc import Collection, Mapping
from typing import Any

from workloads import versions
from workloads.check.measure import Operation, Timing
from workloads.check.report import Device
from workloads.contract import SliceContract
from workloads.slice_group import HostActor
from workloads.slices import stale_variables


class CheckHost(HostActor):
    """Each method is a stage, with a limit of its own: so it is known which host is in which."""

    def versions(self, contract: SliceContract) -> tuple[dict[str, str], list[str]]:
        """With them what is wrong with the host's variables: JAX is not yet here to read them."""
        return versions.here(), stale_variables(contract)

    def devices(self) -> tuple[int, tuple[Device, ...]]:
        """JAX's number of this process, and its devices. Here libtpu starts."""
        import jax

        found = [as_device(one, one.memory_stats()) for one in jax.local_devices()]
        return jax.process_index(), tuple(found)

    def products(self, repeats: int) -> dict[int, float]:
        import jax

        from workloads.check.measure import product_s

        return {device.id: product_s(device, repeats) for device in jax.local_devices()}

    def collective(
        self, operation: Operation, size_mib: int, repeats: int, processes: Collection[int]
    ) -> Timing:
        """Over the devices of these processes, of which this is one."""
        import jax

        from workloads.check.measure import collective

        devices = [device for device in jax.devices() if device.process_index in processes]
        return collective(devices, operation, size_mib, repeats)


def as_device(device: Any, memory: Mapping[str, int] | None) -> Device:
    """A device of JAX, and its memory's figures if it has some."""
    return Device(
        id=device.id,
        platform=device.platform,
        kind=device.device_kind,
        coordinates=getattr(device, "coords", None),
        core=getattr(device, "core_on_chip", None),
        hbm_gib=memory["bytes_limit"] / 2**30 if memory else None,
    )
