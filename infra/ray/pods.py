"""Pod templates: a head without TPU, a TPU host, and a CPU host for data.

Requests equal limits, so nothing is evicted for its neighbour's sake, and Ray knows its CPUs and
chips from them. Liveness probes are left to the Ray operator: they ask the raylet, not the model,
so no compilation, however long, ends a pod. Variables of the slice (TPU_*, and MEGASCALE_* of
several) are set by Google's webhook and by Ray Train, and by nobody else.
"""

from typing import Any

from infra.config import (
    AutopilotCluster,
    ExistingCluster,
    InferSpec,
    ServeSpec,
    StackConfig,
    TrainSpec,
    Workload,
)
from infra.gke.compute_class import CLASS_LABEL, class_name
from infra.gke.names import DASHBOARD_PORT, SERVE_PORT, SLICE_LABEL
from infra.ray import secrets
from infra.ray.places import Mount, model_mount, storage
from infra.ray.sizes import DATA_CPUS, DATA_MEMORY_GIB, HEAD_CPUS, HEAD_MEMORY_GIB
from infra.tpu.capacity import Kind
from infra.tpu.catalog import CHIP_RESOURCE
from infra.tpu.node import allocatable, pod_disk_gib
from infra.tpu.slice import TpuSlice

Manifest = dict[str, Any]

WORKLOAD_LABEL = "raytpu/workload"
CACHE_PATH = "/cache"

GRACE_S = 120
"""To save a checkpoint when the pod must go. A spot host has 15 s, whatever is written here."""
_LEAVE = ("python", "-m", "workloads.drain", "--limit-s", str(GRACE_S - 10))
"""Before SIGTERM, which ends Ray at once: trainers are told, and the pod waits while they save."""

_MOVE_NEVER = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
_TAINTS: dict[Kind, str] = {
    "spot": "cloud.google.com/gke-spot",
    "flex-start": "cloud.google.com/gke-flex-start",
    "queued": "cloud.google.com/gke-queued",
}
_NODE_LABELS: dict[Kind, str] = {kind: _TAINTS[kind] for kind in ("spot", "flex-start")}


def head_pod(config: StackConfig, workload: Workload, *, autoscaled: bool = False) -> Manifest:
    """Holds Ray's own state and a job's driver. Takes no chip."""
    container = _container(
        config,
        workload,
        "ray-head",
        resources={"cpu": str(HEAD_CPUS), "memory": f"{HEAD_MEMORY_GIB}Gi"},
        env={"JAX_PLATFORMS": "cpu"},
        ports={
            "gcs-server": 6379,
            "dashboard": DASHBOARD_PORT,
            "client": 10001,
            "serve": SERVE_PORT,
        },
    )
    pod = _pod(config, workload, container)
    pod["metadata"]["annotations"] |= _MOVE_NEVER
    # The autoscaler beside the head changes its RayCluster by this token; nobody else needs one.
    pod["spec"]["automountServiceAccountToken"] = autoscaled
    return pod


def data_pod(config: StackConfig, workload: Workload) -> Manifest:
    """A host for Ray Data, on the CPU pool."""
    resources = {"cpu": str(DATA_CPUS), "memory": f"{DATA_MEMORY_GIB}Gi"}
    container = _container(
        config, workload, "ray-worker", resources=resources, env={"JAX_PLATFORMS": "cpu"}
    )
    pod = _pod(config, workload, container)
    pod["metadata"]["annotations"] |= _MOVE_NEVER
    return pod


def tpu_pod(config: StackConfig, workload: Workload, tpu: TpuSlice, *, movable: bool) -> Manifest:
    """A host of a slice, with all chips of its node.

    Args:
        config: The stack.
        workload: What runs on the slice.
        tpu: The slice, or one of its fallbacks.
        movable: Whether GKE may evict it to a better rung of its ladder.
    """
    room = allocatable(tpu.machine)
    container = _container(
        config,
        workload,
        "ray-worker",
        resources={
            "cpu": str(room.cpus),
            "memory": f"{room.memory_gib}Gi",
            **_disk(config, tpu),
            **tpu.chip_request,
        },
        env=_tpu_environment(config, workload),
        ports={"mxla": 8081},
    )
    if isinstance(workload, TrainSpec):
        container["lifecycle"] = {"preStop": {"exec": {"command": list(_LEAVE)}}}
    if isinstance(workload, ServeSpec):
        container["readinessProbe"] = _serves()
    pod = _pod(config, workload, container)
    # The devices of v6e and later are root's; KubeRay's samples for them run as root too.
    pod["spec"]["securityContext"] = {"runAsUser": 0}
    pod["spec"]["nodeSelector"] = node_selector(config, tpu)
    pod["spec"]["tolerations"] = tolerations(tpu)
    if not movable:
        pod["metadata"]["annotations"] |= _MOVE_NEVER
    return pod


def _serves() -> Manifest:
    """Whether Serve's proxy is well: such hosts alone are asked by the service.

    The operator's own probe looks every 5 s, and the operator turns a service to a new cluster
    without a look at it, as soon as Ray has the model up (KubeRay 1.5, rayservice_controller.go).
    Connections are refused in between: one was, at such a turn.
    """
    return {
        "httpGet": {"path": "/-/healthz", "port": SERVE_PORT},
        "periodSeconds": 1,
        "timeoutSeconds": 2,
        "failureThreshold": 3,
    }


def _disk(config: StackConfig, tpu: TpuSlice) -> dict[str, str]:
    """Not of nodes that others made: a pod that asks for more than they have waits for ever."""
    if isinstance(config.cluster, ExistingCluster) and tpu.provision == "node_pools":
        return {}
    autopilot = isinstance(config.cluster, AutopilotCluster)
    return {"ephemeral-storage": f"{pod_disk_gib(tpu.boot_disk_gib, autopilot=autopilot)}Gi"}


def node_selector(config: StackConfig, tpu: TpuSlice) -> dict[str, str]:
    """Never affinity: Google's webhook overwrites that, and reads the topology only here."""
    if name := class_name(config, tpu):
        # GKE refuses labels of capacity and machine beside a class, but none of the three of TPUs.
        return {CLASS_LABEL: name, **tpu.node_selector}
    if isinstance(config.cluster, ExistingCluster):
        kinds = [rung.kind for rung in tpu.capacity]
        chosen = {_NODE_LABELS[kind]: "true" for kind in kinds if kind in _NODE_LABELS}
        return {**tpu.node_selector, **chosen}
    return {SLICE_LABEL: tpu.name, **tpu.node_selector}


def tolerations(tpu: TpuSlice) -> list[Manifest]:
    """Of the taints that GKE puts on such nodes."""
    kinds = dict.fromkeys(rung.kind for rung in tpu.capacity)
    taints = [CHIP_RESOURCE, *(_TAINTS[kind] for kind in kinds if kind in _TAINTS)]
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in taints]


def _tpu_environment(config: StackConfig, workload: Workload) -> dict[str, Any]:
    """As in Google's samples, and where compiled programs are kept.

    JAX keeps them in the bucket: the first process writes, all read, and hosts that take the place
    of lost ones need not compile anew. vLLM's image promises no reader of buckets, so there they
    are the node's own.
    """
    if isinstance(workload, ServeSpec) and workload.engine == "vllm":
        cache = {
            "VLLM_XLA_CACHE_PATH": f"{CACHE_PATH}/vllm",
            "JAX_COMPILATION_CACHE_DIR": f"{CACHE_PATH}/jax",
        }
    else:
        cache = {"JAX_COMPILATION_CACHE_DIR": f"{storage(config, 'cache')}/jax"}
    return {
        "JAX_PLATFORMS": "tpu,cpu",
        "ENABLE_PJRT_COMPATIBILITY": "true",
        **cache,
        # For metrics of the chips: a service of the node.
        "NODE_IP": {"fieldRef": {"fieldPath": "status.hostIP"}},
        "VBAR_CONTROL_SERVICE_URL": "$(NODE_IP):8353",
    }


def image(config: StackConfig, workload: Workload) -> str:
    """Raises TypeError for a stack without it, which no stack file is."""
    vllm = isinstance(workload, ServeSpec) and workload.engine == "vllm"
    images = config.images
    found = images and (images.vllm if vllm else images.ray)
    if found is None:
        raise TypeError(f"workload {workload.name} has no image")
    return found


def _container(
    config: StackConfig,
    workload: Workload,
    name: str,
    *,
    resources: dict[str, str],
    env: dict[str, Any],
    ports: dict[str, int] | None = None,
) -> Manifest:
    """The first container of a pod: the operator takes no other for Ray."""
    read = secrets.files(config, workload)
    mounts: list[Manifest] = [{"name": "cache", "mountPath": CACHE_PATH}]
    if read:
        mounts.append({"name": "secrets", "mountPath": secrets.SECRETS_PATH, "readOnly": True})
    if mount := _mount(config, workload):
        mounts.append({"name": "model", "mountPath": mount.path, "readOnly": True})
    if secrets.HUB_TOKEN_FILE in read:
        env = {**env, "HF_TOKEN_PATH": f"{secrets.SECRETS_PATH}/{secrets.HUB_TOKEN_FILE}"}
    env = {"HF_HOME": f"{CACHE_PATH}/hugging-face", "RAY_USAGE_STATS_ENABLED": "0", **env}
    opened = {"metrics": 8080, **(ports or {})}
    return {
        "name": name,
        "image": image(config, workload),
        "imagePullPolicy": "IfNotPresent",
        "env": [_variable(key, value) for key, value in env.items()],
        "ports": [{"name": key, "containerPort": port} for key, port in opened.items()],
        "resources": {"requests": resources, "limits": dict(resources)},
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": mounts,
    }


def _variable(name: str, value: str | dict[str, Any]) -> Manifest:
    key = "value" if isinstance(value, str) else "valueFrom"
    return {"name": name, key: value}


def _pod(config: StackConfig, workload: Workload, container: Manifest) -> Manifest:
    volumes: list[Manifest] = [{"name": "cache", "emptyDir": {}}]
    if secrets.files(config, workload):
        volumes.append(secrets.volume(config, workload))
    mount = _mount(config, workload)
    if mount:
        volumes.append(_bucket(mount))
    return {
        "metadata": {
            "labels": {WORKLOAD_LABEL: workload.name},
            "annotations": {"gke-gcsfuse/volumes": "true"} if mount else {},
        },
        "spec": {
            "serviceAccountName": workload.name,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": GRACE_S,
            "containers": [container],
            "volumes": volumes,
        },
    }


def _mount(config: StackConfig, workload: Workload) -> Mount | None:
    """On every pod of the workload: the head reads the model's settings, the hosts its weights."""
    reads = isinstance(workload, ServeSpec | InferSpec | TrainSpec)
    return model_mount(config, workload) if reads else None


def _bucket(mount: Mount) -> Manifest:
    options = f"implicit-dirs,only-dir:{mount.folder}" if mount.folder else "implicit-dirs"
    return {
        "name": "model",
        "csi": {
            "driver": "gcsfuse.csi.storage.gke.io",
            "readOnly": True,
            "volumeAttributes": {"bucketName": mount.bucket, "mountOptions": options},
        },
    }
