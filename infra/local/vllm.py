"""vLLM's build for CPUs in the local stack: an environment of its own, for its replicas alone.

It pins packages lower than the rest of the project does, and takes 7 GiB: `make vllm` installs it
beside the project's environment. Ray starts the processes of an application in another one if its
runtime environment says so; Ray, its version and Python's are the same in both.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.config import ServeSpec, StackConfig
from infra.errors import Problem

PYTHON = Path(__file__).resolve().parents[2] / ".tools" / "vllm" / "venv" / "bin" / "python"
ARGS = {"device": "cpu"}
"""What the application is told beside what it is told on GKE."""

_VARIABLES = {
    # Else vLLM looks for "+cpu" in the version of its package, which that from PyPI has not.
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def faults(config: StackConfig) -> Iterator[Problem]:
    """What this machine lacks to serve the stack."""
    for index, workload in enumerate(config.workloads):
        if isinstance(workload, ServeSpec) and workload.engine == "vllm" and not PYTHON.exists():
            yield Problem(
                f"raytpu:workloads[{index}].engine",
                "'vllm' needs vLLM's build for CPUs, which is not installed",
                "run `make vllm` (7 GiB), or use jax",
            )


def runtime_env() -> dict[str, Any]:
    """Of an application whose processes are vLLM's."""
    return {"py_executable": str(PYTHON), "env_vars": _VARIABLES}
