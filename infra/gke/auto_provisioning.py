"""Whether and how GKE may make node pools of its own in a Standard cluster.

Compute classes of newer versions make their pools by themselves; older ones need the cluster's node
auto-provisioning ("Configure node pool auto-creation", read 2026-08). That is switched on for such
a version only, since it makes pools for any pod that finds no room, whatever its class. Without a
declared version the release channel decides, and every channel offers a newer one.
"""

from infra.config import GkeCluster, StackConfig
from infra.gke import names, node_config
from infra.gke.args import Args
from infra.gke.version import CLASS_WITHOUT_AUTO_PROVISIONING, reaches

_MEMORY_GIB_PER_CPU = 8
"""Of highmem machines, the largest of the families without accelerators: a limit, not a size."""


def args(config: StackConfig) -> Args:
    """Of a Standard cluster. Idle nodes go soon in either case: a TPU host costs most when idle."""
    profile = {"autoscaling_profile": "OPTIMIZE_UTILIZATION"}
    if not needed(config):
        return {"cluster_autoscaling": {"enabled": False, **profile}}
    return {
        "cluster_autoscaling": {
            "enabled": True,
            **profile,
            "auto_provisioning_locations": [*names.google_cluster(config).zones],
            "auto_provisioning_defaults": {
                "service_account": names.node_account(config),
                "oauth_scopes": [node_config.SCOPE],
                "management": {"auto_repair": True, "auto_upgrade": True},
            },
            "resource_limits": _limits(config),
        }
    }


def needed(config: StackConfig) -> bool:
    version = names.google_cluster(config).version
    by_class = any(tpu.provision == "compute_class" for tpu in config.slices)
    if version is None or not by_class:
        return False
    return not reaches(version, CLASS_WITHOUT_AUTO_PROVISIONING.version)


def _limits(config: StackConfig) -> list[Args]:
    """Of the whole cluster, the declared pools included: all that is declared, and no more."""
    shapes = [shape for tpu in config.slices for shape in tpu.shapes]
    cpus, memory_gib = _cpu_pool_limits(config)
    chips: dict[str, int] = {}
    for shape in shapes:
        cpus += shape.workers * shape.machine.vcpus
        memory_gib += shape.workers * shape.machine.memory_gib
        accelerator = shape.generation.gke_accelerator
        chips[accelerator] = chips.get(accelerator, 0) + shape.chips * shape.count
    limits = {"cpu": cpus, "memory": memory_gib, **chips}
    return [{"resource_type": kind, "maximum": most} for kind, most in limits.items()]


def _cpu_pool_limits(config: StackConfig) -> tuple[int, int]:
    if not isinstance(config.cluster, GkeCluster):
        return 0, 0
    pool = config.cluster.cpu_pool
    cpus = int(pool.machine_type.rpartition("-")[2]) * pool.max_nodes
    return cpus, cpus * _MEMORY_GIB_PER_CPU
