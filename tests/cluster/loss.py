"""A worker's pod that is deleted while its slice trains."""

import re
import subprocess
from dataclasses import dataclass
from typing import Any

from infra.config import TrainSpec
from tests.cluster.real_stack import finished
from tests.cluster.seen import ApiServerError, items, request, request_text, wait_for

LIMIT_S = 600
POLL_S = 2
"""More often, and the API server takes a tenth of two cores that the slice needs to train."""


@dataclass(frozen=True)
class Loss:
    resumed: list[int]
    """After which steps the run went on: anew each time that hosts went while it came up."""
    before: set[str]
    after: set[str]
    """Pods of the slice, by their ids."""


def lose_a_worker(api: Any, up: "subprocess.Popen[str]", namespace: str, train: TrainSpec) -> Loss:
    """Deletes a worker of the declared run at half of its steps, and sees it train to the end."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    workers = f"{pods}?labelSelector=ray.io/group={train.slice}"
    driver, steps = f"{pods}?labelSelector=job-name={train.name}", train.steps
    log = ""

    def tells(words: str) -> None:
        def told() -> bool:
            nonlocal log
            log = _log(api, pods, driver) or log
            assert up.poll() is None or words in log, finished(up, LIMIT_S).output
            return words in log

        wait_for(words, told, LIMIT_S, POLL_S)

    tells(f"step {steps // 2}/{steps}")
    before = items(api, workers)
    request(api, "DELETE", f"{pods}/{before[0]['metadata']['name']}")
    tells("resuming after step")
    tells(f"step {steps - train.log_every}/{steps}")
    after = items(api, workers)
    tells(f"step {steps}/{steps}")
    resumed = [int(step) for step in re.findall(r"resuming after step (\d+)", log)]
    return Loss(resumed, _ids(before), _ids(after))


def _ids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def _log(api: Any, pods: str, driver: str) -> str:
    """Nothing before its pod runs and after it is gone."""
    for pod in items(api, driver):
        try:
            return request_text(api, f"{pods}/{pod['metadata']['name']}/log")
        except ApiServerError:
            return ""
    return ""
