"""What each workload may do on Google Cloud: its own identity, with roles on single buckets.

A workload's Kubernetes service account is itself the member that gets a role (Workload Identity
Federation for GKE), so there is no Google service account to impersonate and no key to lose. The
member's name holds the project's number, which only Google knows: `{project_number}` stands for it
until the stack is brought up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

import pulumi
import pulumi_gcp as gcp

from infra.config import (
    CheckSpec,
    ClusterSpec,
    DataSpec,
    Folder,
    Hub,
    InferSpec,
    ServeSpec,
    SpmdSpec,
    StackConfig,
    TrainSpec,
    Workload,
)
from infra.gke import names, secret
from infra.gke.args import Args

READ = "roles/storage.objectViewer"
WRITE = "roles/storage.objectUser"
"""Reads, writes and deletes objects; changes no access and no bucket."""
LOOK_UP = "roles/storage.legacyBucketReader"
"""Reads the bucket's own metadata (storage.buckets.get), which WRITE does not hold: Ray Train asks
for it when it makes its folder, Orbax when it deletes an old checkpoint. Seen to be asked for."""
ACCESS_SECRET = "roles/secretmanager.secretAccessor"  # noqa: S105 - a role's name

_BUCKET_SCHEME = "gs://"
_WHAT = {READ: "reads", WRITE: "writes", LOOK_UP: "looks-up", ACCESS_SECRET: "reads"}


@dataclass(frozen=True)
class IdentityArgs:
    buckets: dict[str, Args]
    """Keyed by what they allow; each member still without the project's number."""
    secrets: dict[str, Args]


def identity_args(config: StackConfig) -> IdentityArgs:
    buckets = {
        f"{workload.name}-{_WHAT[role]}-{bucket}": {
            "bucket": bucket,
            "role": role,
            "member": _member(config, workload),
        }
        for workload in config.workloads
        for bucket, roles in bucket_roles(config, workload).items()
        for role in sorted(roles)
    }
    secrets = {
        f"{workload.name}-{_WHAT[ACCESS_SECRET]}-{name}": {
            "project": names.google_cluster(config).project,
            "secret_id": name,
            "role": ACCESS_SECRET,
            "member": _member(config, workload),
        }
        for workload in config.workloads
        for name in secrets_read(config, workload)
    }
    return IdentityArgs(buckets, secrets)


def bucket_roles(config: StackConfig, workload: Workload) -> dict[str, set[str]]:
    """The roles on each bucket that the workload needs, and no other bucket."""
    roles: dict[str, set[str]] = {}
    for bucket, role in _needs(config, workload):
        roles.setdefault(bucket, set()).add(role)
    return {bucket: found - {READ} if WRITE in found else found for bucket, found in roles.items()}


def secrets_read(config: StackConfig, workload: Workload) -> list[str]:
    """Names in Secret Manager: the token if it serves a model of the hub, and its own key."""
    if not isinstance(workload, ServeSpec):
        return []
    token = [names.token_secret(config)] if isinstance(workload.model, Hub) else []
    kept = secret.values(config)
    return [name for name in (*token, names.api_key_secret(config, workload.name)) if name in kept]


def _needs(config: StackConfig, workload: Workload) -> Iterator[tuple[str, str]]:
    data, checkpoints, cache = (
        names.bucket_name(config, role) for role in ("data", "checkpoints", "cache")
    )
    match workload:
        case DataSpec():
            yield data, WRITE
            yield from ((bucket, READ) for bucket in _buckets(workload.sources))
            yield from ((bucket, READ) for bucket in _origin(workload.tokenizer, data))
        case TrainSpec():
            yield from ((bucket, READ) for bucket in _origin(workload.data, data))
            yield from ((bucket, READ) for bucket in _origin(workload.base, checkpoints))
            yield checkpoints, WRITE
            yield checkpoints, LOOK_UP
            yield cache, WRITE
        case InferSpec():
            yield data, WRITE
            yield data, LOOK_UP
            yield from ((bucket, READ) for bucket in _origin(workload.model, checkpoints))
            yield from ((bucket, READ) for bucket in _buckets(workload.prompts))
            yield cache, WRITE
        case SpmdSpec():
            yield data, WRITE
            yield data, LOOK_UP
            yield from ((bucket, READ) for bucket in _buckets(workload.reads))
            yield cache, WRITE
        case CheckSpec():
            yield data, WRITE
        case ServeSpec():
            yield from ((bucket, READ) for bucket in _origin(workload.model, checkpoints))
            if workload.engine != "vllm":  # vLLM's is on the node
                yield cache, WRITE
        case ClusterSpec():  # what is done there by hand is what the other kinds do
            yield from ((bucket, WRITE) for bucket in (data, checkpoints, cache))
            yield checkpoints, LOOK_UP
        case _:
            assert_never(workload)


def _origin(origin: str | Folder | Hub | None, of_workloads: str) -> list[str]:
    """The bucket that an input lies in; none for a model of the hub, and for no input."""
    match origin:
        case str():
            return [of_workloads]
        case Folder():
            return _buckets((origin.path,))
        case Hub() | None:
            return []
        case _:
            assert_never(origin)


def _buckets(paths: tuple[str, ...]) -> list[str]:
    inside = (
        path.removeprefix(_BUCKET_SCHEME) for path in paths if path.startswith(_BUCKET_SCHEME)
    )
    return [path.partition("/")[0] for path in inside]


def _member(config: StackConfig, workload: Workload) -> str:
    pool = f"{names.google_cluster(config).project}.svc.id.goog"
    return (
        "principal://iam.googleapis.com/projects/{project_number}/locations/global/"
        f"workloadIdentityPools/{pool}/subject/ns/{names.namespace(config)}/sa/{workload.name}"
    )


class Identity(pulumi.ComponentResource):
    """The roles of all workloads.

    A member need not exist yet when it gets its role, but its pool must, and Google makes that with
    the project's first cluster: so this depends on the cluster.
    """

    def __init__(
        self,
        name: str,
        args: IdentityArgs,
        project_number: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("raytpu:gke:Identity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)

        def numbered(role: Args) -> Args:
            member = pulumi.Output.format(role["member"], project_number=project_number)
            return {**role, "member": member}

        for key, role in args.buckets.items():
            gcp.storage.BucketIAMMember(f"{name}-{key}", **numbered(role), opts=child)
        for key, role in args.secrets.items():
            gcp.secretmanager.SecretIamMember(f"{name}-{key}", **numbered(role), opts=child)
        self.register_outputs({})
