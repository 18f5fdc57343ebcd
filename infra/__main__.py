"""The Pulumi program: reads the stack's configuration and builds what it declares."""

import sys
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import get_config_env, get_config_secret_keys_env

from infra import config
from infra.config import ExistingCluster, LocalCluster
from infra.errors import ConfigError, Problem

ALREADY_TOLD = 32
"""Exit code by which Pulumi's language hosts know that the user has been told."""


def main() -> None:
    try:
        declared = config.load(
            get_config_env(),
            stack=pulumi.get_stack(),
            secret_keys=get_config_secret_keys_env(),
            online=True,
        )
        _check_access(declared)
    except ConfigError as error:
        pulumi.log.error(str(error))
        sys.exit(ALREADY_TOLD)  # a RunError would add "an unhandled error occurred"
    for remark in declared.remarks:
        pulumi.log.warn(str(remark))
    for name, value in _stack(declared).items():
        pulumi.export(name, value)


def _check_access(declared: config.StackConfig) -> None:
    """Raises ConfigError if this machine lacks what the stack is to run on."""
    problems: list[Problem] = []
    if isinstance(declared.cluster, ExistingCluster):
        from infra.gke import kubeconfig

        problems = [*kubeconfig.faults(declared.cluster)]
    if isinstance(declared.cluster, LocalCluster):
        from infra.local import vllm

        problems = [*vllm.faults(declared)]
    if problems:
        raise ConfigError(problems)


def _stack(declared: config.StackConfig) -> dict[str, Any]:
    """Builds all that is declared; the outputs of the stack.

    Each kind of stack is imported by itself: Google's and Kubernetes' SDKs take seconds.
    """
    if isinstance(declared.cluster, LocalCluster):
        from infra.local.stack import LocalStack

        root = Path(pulumi.get_root_directory())
        local = LocalStack("local", declared, declared.cluster, root)
        return {"dashboard_url": local.dashboard_url, "urls": local.urls, "results": local.results}
    from infra.gke.stack import GkeStack

    return GkeStack("gke", declared, declared.cluster).outputs


main()
