"""A program over all hosts of a slice: what its driver waits for, and what its hosts must see."""

import time

from workloads.contract import SliceContract
from workloads.errors import UserError
from workloads.log import say

SLICE_TIMEOUT_S = 900
"""A node pool scales up in minutes; a slice that is not there after this will not come."""
TELL_EVERY_S = 30


def wait_for_slices(contract: SliceContract, timeout_s: float) -> None:
    """Until the slices are whole and idle. Raises UserError after `timeout_s`.

    JaxTrainer would wait for them for ever, and in silence.
    """
    from ray.util.tpu import get_num_ready_tpu_slices

    what = f"{contract.slices} slice(s) {contract.accelerator_type} {contract.topology}"
    deadline = time.monotonic() + timeout_s
    tell_at = 0.0
    while True:
        ready = get_num_ready_tpu_slices(contract.topology, contract.accelerator_type)
        if ready >= contract.slices:
            return
        now = time.monotonic()
        if now > deadline:
            raise UserError(
                f"slice {contract.name}: {ready} of {what} whole and idle after {timeout_s:.0f} s; "
                "end what runs on it, or see why its hosts do not come up"
            )
        if now > tell_at:
            say(f"waiting for {what}: {ready} ready (limit {timeout_s:.0f} s)")
            tell_at = now + TELL_EVERY_S
        time.sleep(1)


def host_resources(contract: SliceContract) -> dict[str, float]:
    """Of a worker: all chips of a host.

    Ray Train reserves a multi-host slice by its name. One host it would take anywhere, also out of
    a larger slice, so that worker asks for what the first host of its shape alone has.
    """
    chips = {"TPU": float(contract.chips_per_host)}
    return chips if contract.multi_host else {**chips, f"TPU-{contract.pod_type}-head": 1.0}


def check_devices(contract: SliceContract) -> None:
    """Raises UserError where JAX does not see, on this host, what was declared."""
    import jax

    seen = {
        "hosts": (jax.process_count(), contract.workers),
        "devices": (jax.device_count(), contract.chips),
        "devices on this host": (jax.local_device_count(), contract.chips_per_host),
    }
    if faults := [
        f"JAX sees {found} {what}, but slice {contract.name} has {declared}; "
        "check the machine type and topology that were declared"
        for what, (found, declared) in seen.items()
        if found != declared
    ]:
        raise UserError(*faults)
