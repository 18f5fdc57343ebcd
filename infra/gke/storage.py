"""The stack's buckets: data, checkpoints, compile cache.

All are private for good: access by bucket-level roles alone, and public access prevented whatever
the roles say. Only the cache of a stack that is not prod is emptied when the stack is destroyed; a
bucket that holds corpora or checkpoints refuses to be deleted until someone empties it, since its
content cannot be had again for the price of a command.
"""

from dataclasses import dataclass
from typing import get_args

import pulumi
import pulumi_gcp as gcp

from infra.config import StackConfig
from infra.gke import names
from infra.gke.args import Args
from infra.gke.names import Role

_SOFT_DELETE_S: dict[Role, int] = {"data": 7 * 24 * 3600, "checkpoints": 0, "cache": 0}
"""How long what was deleted can be restored, and is paid for. A training run deletes its old
checkpoints all the time: with Google's default of 7 days most of the bill would be for those."""

_CACHE_DAYS = 30
"""A compiled program that old is of another version of the code."""
_UPLOAD_DAYS = 7
"""After so long an upload in parts is one that a killed host left behind."""


@dataclass(frozen=True)
class StorageArgs:
    buckets: dict[Role, Args]


def storage_args(config: StackConfig) -> StorageArgs:
    return StorageArgs({role: _bucket(config, role) for role in get_args(Role)})


def _bucket(config: StackConfig, role: Role) -> Args:
    cluster = names.google_cluster(config)
    return {
        "name": names.bucket_name(config, role),
        "project": cluster.project,
        # In the region of the nodes: traffic is free there. Upper case, as Google gives it back.
        "location": cluster.region.upper(),
        "storage_class": "STANDARD",
        "uniform_bucket_level_access": True,
        "public_access_prevention": "enforced",
        "force_destroy": role == "cache" and config.environment != "prod",
        "soft_delete_policy": {"retention_duration_seconds": _SOFT_DELETE_S[role]},
        "lifecycle_rules": _lifecycle(role),
        "labels": names.labels(config),
    }


def _lifecycle(role: Role) -> list[Args]:
    abandoned = {
        "action": {"type": "AbortIncompleteMultipartUpload"},
        "condition": {"age": _UPLOAD_DAYS},
    }
    if role != "cache":
        return [abandoned]
    return [abandoned, {"action": {"type": "Delete"}, "condition": {"age": _CACHE_DAYS}}]


class Storage(pulumi.ComponentResource):
    """One bucket a role."""

    def __init__(
        self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("raytpu:gke:Storage", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        for role, bucket in args.buckets.items():
            gcp.storage.Bucket(f"{name}-{role}", **bucket, opts=child)
        self.register_outputs({})
