"""What a run tells while it goes on: every host reports it to Ray, and the driver's log shows it.

By way of Ray's controller, which is on the driver's node. What a worker prints stays in the logs of
its host, unless Ray's log monitor runs there and carries it over line by line.
"""

from typing import Any

import ray.train
from ray.train import UserCallback

from workloads.log import say

LINE = "line"


def tell(line: str, **metrics: float) -> None:
    """Called by every host alike, as Ray waits for all of them."""
    ray.train.report({**metrics, LINE: line})


class Progress(UserCallback):
    """Shows the lines, each once."""

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        del run_context, checkpoint
        if line := metrics[0].get(LINE):
            say(line)
