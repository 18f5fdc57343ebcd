"""Until when `pulumi up` waits for a workload, and for how long.

Pulumi's Kubernetes provider reads both from annotations. Its conditions are of the object alone,
and of what the operator says of its newest generation.
"""

import json
from datetime import timedelta

from infra.config import (
    ClusterSpec,
    InferSpec,
    JobSpec,
    ServeSpec,
    StackConfig,
    TrainSpec,
    Workload,
)

PROVISIONING = timedelta(minutes=30)
"""A TPU node pool scales up in minutes, and GKE gives flex-start 15 before it tries the next."""
MARGIN = timedelta(minutes=2)
"""For the operator to write down what it found at its own deadline."""

WAIT_FOR = "pulumi.com/waitFor"
LIMIT = "pulumi.com/timeoutSeconds"

FAILED = ("Failed", "ValidationFailed")


def _any_of(*statuses: str) -> str:
    # Not by match(): the provider's JSONPath (theory/jsonpath 0.9) panics where there is no value.
    return " || ".join(f'@.jobDeploymentStatus == "{status}"' for status in statuses)


ENDED = f"jsonpath={{[?{_any_of('Complete', *FAILED)}]}}"
"""For good or ill. A job that the operator refuses gets no time of its end, and one that it tries
again has already a reason why it failed."""
STARTED = f"jsonpath={{[?@.jobStatus || {_any_of(*FAILED)}]}}"
"""The operator submits a job when every host of its cluster is ready."""
SERVING = json.dumps(["condition=Ready", "condition=UpgradeInProgress=False"])
"""Of a service that is upgraded the old cluster is ready all the while."""

_GOALS = {
    STARTED: "started",
    ENDED: "finished",
    SERVING: "ready to serve with its newest cluster",
}


def wait(config: StackConfig, workload: Workload) -> dict[str, str]:
    """Annotations of the workload's object.

    A cluster to work on is not waited for: of a change that touches no pod its operator never says
    that it has seen it (KubeRay 1.6), and the provider would wait until the limit, each time.
    """
    if isinstance(workload, ClusterSpec):
        return {}
    condition, limit = _wait(config, workload)
    seconds = int(limit.total_seconds())
    return {WAIT_FOR: condition, LIMIT: str(seconds)}


def goal(condition: str) -> str:
    """What is waited for, in words that follow "was not"."""
    return _GOALS[condition]


def must_finish(config: StackConfig, workload: Workload) -> bool:
    """Whether the stack goes on only when the job has ended: it says so, or another reads of it."""
    if not isinstance(workload, JobSpec):
        return False
    return workload.wait_for == "finish" or workload.name in _read(config)


def service_limit(workload: ServeSpec) -> timedelta:
    return PROVISIONING + workload.startup_timeout


def _wait(config: StackConfig, workload: JobSpec | ServeSpec) -> tuple[str, timedelta]:
    match workload:
        case ServeSpec():
            return SERVING, service_limit(workload)
        case _ if must_finish(config, workload):
            return ENDED, workload.deadline * (1 + workload.retries) + MARGIN
        case _:
            return STARTED, workload.start_deadline + MARGIN


def _read(config: StackConfig) -> set[str]:
    """Workloads whose output others read."""
    runs = [w for w in config.workloads if isinstance(w, TrainSpec)]
    trained = [origin for run in runs for origin in (run.data, run.base)]
    used = [w.model for w in config.workloads if isinstance(w, ServeSpec | InferSpec)]
    return {origin for origin in (*trained, *used) if isinstance(origin, str)}
