"""Secrets of the stack file: from a Pulumi secret to Secret Manager.

Pods read them there as the workload's own identity, through the cluster's Secret Manager add-on. So
a secret is in Pulumi's state as ciphertext, and in no manifest, plan or log.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
from pydantic import SecretStr

from infra.config import ServeSpec, StackConfig
from infra.gke import names
from infra.gke.args import Args


@dataclass(frozen=True)
class SecretArgs:
    secret: Args
    version: Args
    """All but the secret itself."""


@dataclass(frozen=True)
class SecretsArgs:
    secrets: dict[str, SecretArgs]
    """By their names in Secret Manager, as `values` has them."""


def values(config: StackConfig) -> dict[str, SecretStr]:
    """What is kept, by its name in Secret Manager."""
    kept = {
        names.api_key_secret(config, workload.name): workload.api_key
        for workload in config.workloads
        if isinstance(workload, ServeSpec)
    }
    kept[names.token_secret(config)] = config.hugging_face_token
    return {name: secret for name, secret in kept.items() if secret is not None}


def secrets_args(config: StackConfig) -> SecretsArgs:
    return SecretsArgs({name: _secret(config, name) for name in values(config)})


def _secret(config: StackConfig, name: str) -> SecretArgs:
    cluster = names.google_cluster(config)
    return SecretArgs(
        secret={
            "project": cluster.project,
            "secret_id": name,
            # Read in one region only, so it need lie in no other.
            "replication": {"user_managed": {"replicas": [{"location": cluster.region}]}},
            "labels": names.labels(config),
        },
        version={"secret": f"projects/{cluster.project}/secrets/{name}"},
    )


class Secrets(pulumi.ComponentResource):
    """Each secret with its one version."""

    def __init__(
        self,
        name: str,
        args: SecretsArgs,
        values: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("raytpu:gke:Secrets", name, None, opts)
        for key, made in args.secrets.items():
            secret = gcp.secretmanager.Secret(
                f"{name}-{key}", **made.secret, opts=pulumi.ResourceOptions(parent=self)
            )
            gcp.secretmanager.SecretVersion(
                f"{name}-{key}-version",
                **made.version,
                secret_data=pulumi.Output.secret(values[key]),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[secret]),
            )
        self.register_outputs({})
