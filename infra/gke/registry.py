"""The stack's repository of container images, in Artifact Registry.

A tag stands for one image for ever: what a stack file names is what ran.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.config import StackConfig
from infra.gke import names
from infra.gke.args import Args


@dataclass(frozen=True)
class RegistryArgs:
    repository: Args


def registry_args(config: StackConfig) -> RegistryArgs:
    cluster = names.google_cluster(config)
    return RegistryArgs(
        {
            "project": cluster.project,
            "location": cluster.region,
            "repository_id": names.stack_name(config),
            "format": "DOCKER",
            "docker_config": {"immutable_tags": True},
            "labels": names.labels(config),
        }
    )


def address(config: StackConfig) -> str:
    """Where images are pushed to."""
    cluster = names.google_cluster(config)
    host = f"{cluster.region}-docker.pkg.dev"
    return f"{host}/{cluster.project}/{names.stack_name(config)}"


class Registry(pulumi.ComponentResource):
    def __init__(
        self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("raytpu:gke:Registry", name, None, opts)
        gcp.artifactregistry.Repository(
            name, **args.repository, opts=pulumi.ResourceOptions(parent=self)
        )
        self.register_outputs({})
