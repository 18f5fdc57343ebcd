"""Everything that a stack makes on Google Cloud, decided before anything is asked of anybody."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from infra.config import StackConfig
from infra.gke.args import Args
from infra.gke.cluster import ClusterArgs, cluster_args
from infra.gke.cpu_pool import CpuPoolArgs, cpu_pool_args
from infra.gke.identity import IdentityArgs, identity_args
from infra.gke.network import NetworkArgs, network_args
from infra.gke.node_account import NodeAccountArgs, node_account_args
from infra.gke.registry import RegistryArgs, registry_args
from infra.gke.secret import SecretsArgs, secrets_args
from infra.gke.services import ServicesArgs, services_args
from infra.gke.storage import StorageArgs, storage_args
from infra.gke.tpu_pool import TpuPoolArgs, tpu_pool_args


class Resource(NamedTuple):
    type: str
    """The SDK's class, below pulumi_gcp."""
    args: Args
    """All that is known before `pulumi up`: of a secret not its value, and of a member of a role
    {project_number} for what only Google knows."""


@dataclass(frozen=True)
class CloudPlan:
    """The arguments of each component."""

    services: ServicesArgs
    network: NetworkArgs
    storage: StorageArgs
    secrets: SecretsArgs
    registry: RegistryArgs
    node_account: NodeAccountArgs
    cluster: ClusterArgs
    cpu_pool: CpuPoolArgs | None
    tpu_pools: dict[str, TpuPoolArgs]
    """By the slices' names."""
    identity: IdentityArgs

    def resources(self) -> Iterator[Resource]:
        """Each resource by itself, in an order in which they could be made."""
        yield from _all("projects.Service", self.services.services)
        yield Resource("compute.Network", self.network.network)
        yield Resource("compute.Subnetwork", self.network.subnetwork)
        yield Resource("compute.Router", self.network.router)
        yield Resource("compute.RouterNat", self.network.nat)
        yield from _all("storage.Bucket", self.storage.buckets.values())
        for secret in self.secrets.secrets.values():
            yield Resource("secretmanager.Secret", secret.secret)
            yield Resource("secretmanager.SecretVersion", secret.version)
        yield Resource("artifactregistry.Repository", self.registry.repository)
        yield Resource("serviceaccount.Account", self.node_account.account)
        yield Resource("projects.IAMMember", self.node_account.role)
        yield from _all("artifactregistry.RepositoryIamMember", self.node_account.pulls.values())
        yield Resource("container.Cluster", self.cluster.cluster)
        if self.cpu_pool is not None:
            yield Resource("container.NodePool", self.cpu_pool.pool)
        for tpu in self.tpu_pools.values():
            yield from _all("compute.ResourcePolicy", tpu.policies)
            yield from _all("container.NodePool", tpu.pools)
        yield from _all("storage.BucketIAMMember", self.identity.buckets.values())
        yield from _all("secretmanager.SecretIamMember", self.identity.secrets.values())


def plan(config: StackConfig) -> CloudPlan:
    """Of a stack that makes its cluster."""
    return CloudPlan(
        services=services_args(config),
        network=network_args(config),
        storage=storage_args(config),
        secrets=secrets_args(config),
        registry=registry_args(config),
        node_account=node_account_args(config),
        cluster=cluster_args(config),
        cpu_pool=cpu_pool_args(config),
        tpu_pools={tpu.name: tpu_pool_args(config, tpu) for tpu in config.slices},
        identity=identity_args(config),
    )


def _all(type_: str, args: Iterable[Args]) -> Iterator[Resource]:
    return (Resource(type_, each) for each in args)
