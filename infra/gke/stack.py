"""A stack on GKE as one component: the cloud, and on it the Kubernetes objects of its workloads.

Each part depends on what it needs, and is deleted in the opposite order. `pulumi destroy` therefore
ends workloads first, then the TPU pools, and the cluster towards the end: if that is protected it
stays, and has stopped to cost TPU hours. To delete it too, set `deletion_protection: false`, run
`pulumi up --target '**:Cluster::*'`, which brings no pool back, and destroy again.
"""

from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.config import AutopilotCluster, ExistingCluster, GkeCluster, StackConfig
from infra.gke import names, secret
from infra.gke.cluster import Cluster
from infra.gke.cpu_pool import CpuPool
from infra.gke.identity import Identity
from infra.gke.kubeconfig import file_of, kubeconfig
from infra.gke.network import Network
from infra.gke.node_account import NodeAccount
from infra.gke.outputs import outputs
from infra.gke.plan import plan
from infra.gke.registry import Registry
from infra.gke.secret import Secrets
from infra.gke.services import Services
from infra.gke.storage import Storage
from infra.gke.tpu_pool import TpuPool
from infra.ray.kubernetes import Workloads

Providers = tuple[kubernetes.Provider, kubernetes.Provider]


class GkeStack(pulumi.ComponentResource):
    """`config` on Google Cloud, or in a cluster that others made."""

    outputs: dict[str, Any]
    """What a user needs to know; see the module of that name."""

    def __init__(
        self,
        name: str,
        config: StackConfig,
        cluster: GkeCluster | AutopilotCluster | ExistingCluster,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("raytpu:gke:GkeStack", name, None, opts)
        self._name = name
        self._config = config
        if isinstance(cluster, ExistingCluster):
            made, needs = self._kubernetes(file_of(cluster), cluster.context), []
        else:
            made, needs = self._build()
        applier, creator = made
        Workloads(
            f"{name}-workloads",
            config,
            creator,
            opts=pulumi.ResourceOptions(parent=self, provider=applier, depends_on=needs),
        )
        self.outputs = outputs(config)
        self.register_outputs(self.outputs)

    def _build(self) -> tuple[Providers, list[pulumi.Resource]]:
        """The cloud: how to reach its cluster, and what must be there before it runs anything."""
        name, made = self._name, plan(self._config)
        services = Services(f"{name}-services", made.services, self._after())
        network = Network(f"{name}-network", made.network, self._after(services))
        storage = Storage(f"{name}-storage", made.storage, self._after(services))
        registry = Registry(f"{name}-registry", made.registry, self._after(services))
        values = {key: kept.get_secret_value() for key, kept in secret.values(self._config).items()}
        secrets = Secrets(f"{name}-secrets", made.secrets, values, self._after(services))
        nodes = NodeAccount(f"{name}-nodes", made.node_account, self._after(services, registry))
        cluster = Cluster(f"{name}-cluster", made.cluster, self._after(network, nodes))
        identity = Identity(
            f"{name}-identity",
            made.identity,
            services.project_number,
            self._after(cluster, storage, secrets),
        )
        pools: list[pulumi.Resource] = []
        if made.cpu_pool is not None:
            pools = [CpuPool(f"{name}-cpu", made.cpu_pool, self._after(cluster))]
        tpus = [
            TpuPool(f"{name}-{tpu}", args, self._after(cluster, *pools))
            for tpu, args in made.tpu_pools.items()
        ]
        access = kubeconfig(names.stack_name(self._config), cluster.server)
        providers = self._kubernetes(pulumi.Output.json_dumps(access), None, cluster)
        return providers, [cluster, identity, *pools, *tpus]

    def _kubernetes(
        self, access: pulumi.Input[str], context: str | None, *needs: pulumi.Resource
    ) -> Providers:
        """One that applies, and one that creates: see Workloads."""
        applier, creator = (
            kubernetes.Provider(
                f"{self._name}-{name}",
                kubeconfig=access,
                context=context,
                enable_server_side_apply=applies,
                opts=self._after(*needs),
            )
            for name, applies in (("kubernetes", True), ("kubernetes-create", False))
        )
        return applier, creator

    def _after(self, *needs: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=[*needs])
