"""Until when `pulumi up` waits for a workload, and for how long.

Pulumi's Kubernetes provider reads both from annotations, and names in its error what it waited for.
"""

from datetime import timedelta

from infra.config import ClusterSpec, DataSpec, ServeSpec, StackConfig, TrainSpec, Workload

PROVISIONING = timedelta(minutes=30)
"""A TPU node pool scales up in minutes, and GKE gives flex-start 15 before it tries the next."""
_MARGIN = timedelta(minutes=2)
"""For the operator to write down what it found at its own deadline."""

STARTED = "jsonpath={.status.jobStatus}"
"""The operator submits a job when every host of its cluster is ready."""
ENDED = "jsonpath={.status.endTime}"
"""For good or ill; a failed job never shows what a finished one does."""
SERVING = "condition=Ready"
HEAD_READY = "condition=HeadPodReady"


def wait(config: StackConfig, workload: Workload) -> dict[str, str]:
    """Annotations of the workload's object."""
    condition, limit = _wait(config, workload)
    seconds = int(limit.total_seconds())
    return {"pulumi.com/waitFor": condition, "pulumi.com/timeoutSeconds": str(seconds)}


def must_finish(config: StackConfig, workload: Workload) -> bool:
    """Whether the stack goes on only when the job has ended: it says so, or another reads of it."""
    if not isinstance(workload, DataSpec | TrainSpec):
        return False
    return workload.wait_for == "finish" or workload.name in _read(config)


def service_limit(workload: ServeSpec) -> timedelta:
    return PROVISIONING + workload.startup_timeout


def _wait(config: StackConfig, workload: Workload) -> tuple[str, timedelta]:
    match workload:
        case ServeSpec():
            return SERVING, service_limit(workload)
        case ClusterSpec():
            return HEAD_READY, PROVISIONING
        case _ if must_finish(config, workload):
            return ENDED, workload.deadline * (1 + workload.retries) + _MARGIN
        case _:
            return STARTED, workload.start_deadline + _MARGIN


def _read(config: StackConfig) -> set[str]:
    """Workloads whose output others read."""
    trained = [w.data for w in config.workloads if isinstance(w, TrainSpec)]
    served = [w.model for w in config.workloads if isinstance(w, ServeSpec)]
    return {origin for origin in (*trained, *served) if isinstance(origin, str)}
