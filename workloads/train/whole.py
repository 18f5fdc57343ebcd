"""What Ray Train may start on: each attempt, its own second ones too, only on whole slices."""

from collections.abc import Iterator
from contextlib import contextmanager

from ray.train.v2._internal.execution.callback import WorkerGroupCallback

from workloads.contract import SliceContract
from workloads.slices import only_whole


class WholeSlices(WorkerGroupCallback):
    """Ray has no such choice in public (2.60); it runs this in its controller."""

    def __init__(self, contract: SliceContract) -> None:
        self._contract = contract

    @contextmanager
    def on_worker_group_start(self) -> Iterator[None]:
        with only_whole(self._contract):
            yield
