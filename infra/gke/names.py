"""Names and labels of what the stack makes on Google Cloud, known before anything exists.

Every name says whose it is and follows from the stack's own name, so resources refer to each other
by plain text, and `raytpu render` shows them without asking Google. A name that a long stack name
would make too long is cut and ends in a digest of the whole.
"""

import hashlib
from typing import Literal

from infra.config import AutopilotCluster, GkeCluster, StackConfig
from infra.tpu.slice import TpuSlice

OwnCluster = GkeCluster | AutopilotCluster
"""One that the stack makes."""
Role = Literal["data", "checkpoints", "cache"]
"""What a bucket is for."""

BUDGET = "raytpu/max-usd-per-month"
"""Annotation of the namespace by which policies know the team's budget."""
KUBERAY = "raytpu/kuberay"
"""Annotation of the namespace by which policies know the operator's version."""
DASHBOARD_PORT, SERVE_PORT = 8265, 8000
"""Of Ray's own defaults, which KubeRay's services keep."""
SLICE_LABEL = "raytpu/slice"
"""Of the nodes that this stack makes: one slice's pods do not take another's capacity."""
TEAM_LABEL = "raytpu/team"

_DIGEST_LENGTH = 6


def bounded(name: str, limit: int) -> str:
    """The name in at most `limit` characters, still its own."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: limit - _DIGEST_LENGTH - 1].rstrip('-')}-{digest}"


def google_cluster(config: StackConfig) -> OwnCluster:
    """The cluster that the stack makes. Raises TypeError for a stack that makes none."""
    if not isinstance(config.cluster, GkeCluster | AutopilotCluster):
        raise TypeError(f"mode {config.cluster.mode} makes nothing on Google Cloud")
    return config.cluster


def stack_name(config: StackConfig) -> str:
    """Of the cluster, its network and its image repository. GKE takes 40 characters."""
    return bounded(f"raytpu-{config.stack}", 40)


def namespace(config: StackConfig) -> str:
    if config.team is None:
        raise TypeError("a stack without a team has no namespace")
    return config.team.namespace or config.team.name


def bucket_name(config: StackConfig, role: Role) -> str:
    """Bucket names are one space for all of Google's customers, hence the project's."""
    return bounded(f"{google_cluster(config).project}-raytpu-{config.stack}-{role}", 63)


def node_account_id(config: StackConfig) -> str:
    return bounded(f"raytpu-{config.stack}-nodes", 30)


def node_account(config: StackConfig) -> str:
    """Address of the service account that nodes run as, those of compute classes too."""
    project = google_cluster(config).project
    return f"{node_account_id(config)}@{project}.iam.gserviceaccount.com"


def token_secret(config: StackConfig) -> str:
    """Of the Hugging Face token in Secret Manager."""
    return f"{stack_name(config)}-hugging-face-token"


def api_key_secret(config: StackConfig, workload: str) -> str:
    """Of the key that clients of a served model must send, in Secret Manager."""
    return f"{stack_name(config)}-{workload}-api-key"


def workload_policy(config: StackConfig, shape: TpuSlice) -> str | None:
    """Of the policy that holds a slice's hosts together, where the generation needs one.

    Others take compact placement; a slice of one host needs neither.
    """
    if not shape.workload_policy:
        return None
    return bounded(f"raytpu-{config.stack}-{shape.name}", 63)


def pool_names(tpu: TpuSlice) -> tuple[str, ...]:
    """One a copy of a multi-host slice; the only one of single-host slices."""
    return tuple(f"{tpu.name}-{index}" for index in range(len(tpu.pools)))


def labels(config: StackConfig) -> dict[str, str]:
    """For the bill: on everything of the stack that takes labels."""
    if config.team is None:
        raise TypeError("a stack without a team has nobody to bill")
    return {
        **google_cluster(config).labels,
        "environment": config.environment,
        "team": config.team.name,
        "cost_center": config.team.cost_center,
        "managed_by": "raytpu",
    }
