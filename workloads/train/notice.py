"""A stop notice: the host is about to go, and there is still time to save.

Ray knows of it when a node is draining (`workloads/drain.py`), and Ray Train then tells every
worker, each at its own moment. All hosts must save the same step: JAX's preemption service agrees
on one, some steps ahead. It takes a SIGTERM to the process as the notice, so that is passed on.
"""

import signal

from jax.experimental import multihost_utils
from ray.train.v2._internal.execution.context import get_train_context


class StopNotice:
    """Asked by every host once a step, from the same step on."""

    def __init__(self) -> None:
        self._passed_on = False

    def ends(self, step: int) -> bool:
        """Whether `step` is the one that all hosts save, and their last."""
        # Ray's public call is a barrier of all hosts, too much for each step; this is what it asks.
        told = get_train_context().preemption_context.preemption_info
        if told is not None and not self._passed_on:
            signal.raise_signal(signal.SIGTERM)
            self._passed_on = True
        return multihost_utils.reached_preemption_sync_point(step)
