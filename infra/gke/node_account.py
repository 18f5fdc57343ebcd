"""The service account that nodes run as: it writes logs and metrics and pulls images, no more.

Google's default account for nodes may edit the whole project, and any pod that reaches the metadata
server could then do so too. Workloads have identities of their own (access).
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import pulumi
import pulumi_gcp as gcp

from infra.config import StackConfig
from infra.gke import names
from infra.gke.args import Args

NODE_ROLE = "roles/container.defaultNodeServiceAccount"
"""Google's least role for a node: write logs, metrics and autoscaling signals."""
PULL_ROLE = "roles/artifactregistry.reader"

_IMAGE = re.compile(r"([-a-z0-9]+)-docker\.pkg\.dev/([^/]+)/([^/]+)/")


class Repository(NamedTuple):
    """One of Artifact Registry."""

    location: str
    project: str
    name: str


@dataclass(frozen=True)
class NodeAccountArgs:
    account: Args
    role: Args
    pulls: dict[str, Args]
    """Keyed by repository."""


def node_account_args(config: StackConfig) -> NodeAccountArgs:
    project = names.google_cluster(config).project
    member = f"serviceAccount:{names.node_account(config)}"
    return NodeAccountArgs(
        account={
            "project": project,
            "account_id": names.node_account_id(config),
            "display_name": f"Nodes of {names.stack_name(config)}",
        },
        role={"project": project, "role": NODE_ROLE, "member": member},
        pulls={
            "-".join(repository): {
                "project": repository.project,
                "location": repository.location,
                "repository": repository.name,
                "role": PULL_ROLE,
                "member": member,
            }
            for repository in repositories(config)
        },
    )


def repositories(config: StackConfig) -> list[Repository]:
    """Those that hold the declared images, and the stack's own.

    Images of other registries are public, or pulled with a secret of the user's.
    """
    cluster = names.google_cluster(config)
    own = Repository(cluster.region, cluster.project, names.stack_name(config))
    declared = [] if config.images is None else [config.images.ray, config.images.vllm]
    found = [_IMAGE.match(image) for image in declared if image is not None]
    return sorted({own, *(Repository(*match.groups()) for match in found if match)})


class NodeAccount(pulumi.ComponentResource):
    """The account and its roles. It depends on the repositories it may pull from."""

    def __init__(
        self, name: str, args: NodeAccountArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("raytpu:gke:NodeAccount", name, None, opts)
        account = gcp.serviceaccount.Account(
            name, **args.account, opts=pulumi.ResourceOptions(parent=self)
        )
        after_account = pulumi.ResourceOptions(parent=self, depends_on=[account])
        gcp.projects.IAMMember(f"{name}-role", **args.role, opts=after_account)
        for repository, pull in args.pulls.items():
            gcp.artifactregistry.RepositoryIamMember(
                f"{name}-pull-{repository}", **pull, opts=after_account
            )
        self.register_outputs({})
