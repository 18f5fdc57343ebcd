"""What is seen to before an attempt starts: each, also those that Ray makes by itself."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ray.train.v2._internal.execution.callback import WorkerGroupCallback

from workloads.contract import SliceContract
from workloads.data import storage
from workloads.errors import UserError
from workloads.log import say
from workloads.slices import TELL_EVERY_S, only_whole

STORAGE_TIMEOUT_S = 600
"""For an outage of storage, or a permission that somebody gives back."""


class BeforeStart(WorkerGroupCallback):
    """Storage takes what is written, and Ray is left with no slices but whole ones.

    Ray Train has no place for that in public (2.60); it runs this in its controller, on the node
    of the driver.
    """

    def __init__(self, contract: SliceContract, written: str) -> None:
        """`written`: the folder or URL of what the attempts keep."""
        self._contract, self._written = contract, written

    @contextmanager
    def on_worker_group_start(self) -> Iterator[None]:
        wait_until_writable(self._written, STORAGE_TIMEOUT_S)
        with only_whole(self._contract):
            yield


def wait_until_writable(url: str, timeout_s: float) -> None:
    """Raises UserError if nothing can be written there after `timeout_s`.

    An attempt that cannot save is one of those that a run is allowed; it would use them up.
    """
    deadline, tell_at = time.monotonic() + timeout_s, 0.0
    probe = storage.join(url, ".writable")
    while True:
        try:
            storage.write_atomically(probe, b"")
            storage.remove(probe)
        except Exception as error:  # noqa: BLE001 # each kind of storage has its own
            why, now = f"{type(error).__name__}: {error}", time.monotonic()
        else:
            return
        if now > deadline:
            raise UserError(
                f"{url}: takes no writes after {timeout_s:.0f} s ({why}); see to its permissions "
                "and space"
            )
        if now > tell_at:
            say(f"waiting for {url} to take writes (limit {timeout_s:.0f} s): {why}")
            tell_at = now + TELL_EVERY_S
        time.sleep(1)
