"""What a run tells while it goes on: every host reports it to Ray, and the driver's log shows it.

By way of Ray's controller, which is on the driver's node. What a worker prints stays in the logs of
its host, unless Ray's log monitor runs there and carries it over line by line.
"""

from functools import cache
from typing import Any

import ray.train
from ray.train import UserCallback
from ray.util.metrics import Gauge

from workloads.log import say

LINE = "line"
GAUGES = {
    "step": ("raytpu_train_step", "The last step that was told"),
    "loss": ("raytpu_train_loss", "Mean loss of that step, in nats a token"),
    "held_out_loss": ("raytpu_train_held_out_loss", "Of held-out text, in nats a token"),
    "step_s": ("raytpu_train_step_seconds", "A step's time, since the line before"),
    "tokens_per_s": ("raytpu_train_tokens_per_second", "Of all chips, since the line before"),
    "utilisation": ("raytpu_train_model_flops_utilization_ratio", "Of the slice's bf16 peak"),
    "goodput": ("raytpu_train_goodput_ratio", "Of the time since the run began, in kept steps"),
}
"""What is reported: its name and meaning in Ray's metrics, which add "ray_" before the name."""


def tell(line: str, **metrics: float) -> None:
    """Called by every host alike, as Ray waits for all of them."""
    ray.train.report({**metrics, LINE: line})


class Progress(UserCallback):
    """Shows the lines, each once, and sets the gauges on the node that the driver is on."""

    def __init__(self, output: str) -> None:
        """`output`: STORAGE/WORKLOAD/RUN, whose last two names tell runs apart."""
        *_, workload, run = output.rstrip("/").split("/")
        self._tags = {"workload": workload, "run": run}

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        del run_context, checkpoint
        told = metrics[0]
        if line := told.get(LINE):
            say(line)
        for name in GAUGES.keys() & told.keys():
            _gauge(name).set(told[name], tags=self._tags)


@cache
def _gauge(name: str) -> Gauge:
    """Of the controller's process: a gauge lives as long as the process that made it."""
    gauge, meaning = GAUGES[name]
    return Gauge(gauge, description=meaning, tag_keys=("workload", "run"))
