"""The Hugging Face token: from a Pulumi secret to Secret Manager.

Pods read it there, as the workload's own identity, through the cluster's Secret Manager add-on. So
the token is in Pulumi's state as ciphertext, and in no manifest, plan or log.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.config import StackConfig
from infra.gke import names
from infra.gke.args import Args


@dataclass(frozen=True)
class TokenSecretArgs:
    secret: Args
    version: Args
    """All but the token itself."""


def token_secret_args(config: StackConfig) -> TokenSecretArgs | None:
    """None for a stack without a token."""
    if config.hugging_face_token is None:
        return None
    cluster = names.google_cluster(config)
    secret = names.token_secret(config)
    return TokenSecretArgs(
        secret={
            "project": cluster.project,
            "secret_id": secret,
            # Read in one region only, so it need lie in no other.
            "replication": {"user_managed": {"replicas": [{"location": names.region(cluster)}]}},
            "labels": names.labels(config),
        },
        version={"secret": f"projects/{cluster.project}/secrets/{secret}"},
    )


class TokenSecret(pulumi.ComponentResource):
    """The secret and its one version."""

    def __init__(
        self,
        name: str,
        args: TokenSecretArgs,
        token: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("raytpu:gke:TokenSecret", name, None, opts)
        secret = gcp.secretmanager.Secret(
            f"{name}-secret", **args.secret, opts=pulumi.ResourceOptions(parent=self)
        )
        gcp.secretmanager.SecretVersion(
            f"{name}-version",
            **args.version,
            secret_data=pulumi.Output.secret(token),
            # Another token is there before the old one goes: a pod that starts finds one.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[secret]),
        )
        self.register_outputs({})
