"""What the nodes of all pools of the stack have in common."""

from infra.config import StackConfig
from infra.gke import names
from infra.gke.args import Args

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
"""A node's roles decide what it may do. Scopes came before roles; Google advises this one."""

IGNORED = (
    # GKE fills these in where nothing is said. The difference would replace the pool
    # (advancedMachineFeatures, guestAccelerators), or update it for nothing at every run.
    "nodeConfig.advancedMachineFeatures",  # threads a core, by machine type
    "nodeConfig.guestAccelerators",  # a TPU is none, and yet listed for some generations
    "nodeConfig.kubeletConfig",  # from the cluster's defaults
    "nodeConfig.shieldedInstanceConfig",  # by machine type
    "nodeDrainConfigs",
)
"""Fields of a pool whose read-back differs from what was asked for. None that says what a pool is:
of an ignored field a pool that replaces another begins with the other's value."""


def common(config: StackConfig) -> Args:
    """As the nodes of a pool begin: each pool adds its machine and what follows from it."""
    return {
        "service_account": names.node_account(config),
        "oauth_scopes": [SCOPE],
        # Pods get tokens of their own identity only, never the node's.
        "workload_metadata_config": {"mode": "GKE_METADATA"},
        # Images of several GiB are read as they are needed, while the program starts.
        "gcfs_config": {"enabled": True},
    }
