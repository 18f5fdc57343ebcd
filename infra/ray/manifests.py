"""RayJob, RayService and RayCluster of a workload, as plain dicts.

Fields are those of KubeRay 1.5; a newer one is used only where the stack says that the operator has
it. Reasons and limits: KubeRay's validation.go and types (v1.5.0, v1.6.1), the TPU webhook
(ef658db), Ray 2.60.
"""

from datetime import timedelta
from importlib.metadata import version
from typing import Any

from infra.config import (
    ClusterSpec,
    DataSpec,
    JobSpec,
    LocalCluster,
    ServeSpec,
    SpmdSpec,
    StackConfig,
    TrainSpec,
    Workload,
)
from infra.gke.compute_class import class_name, migrates
from infra.gke.names import namespace
from infra.ray import pods, secrets
from infra.ray.entrypoint import entrypoint
from infra.ray.labels import ray_labels
from infra.ray.serve_config import serve_config
from infra.ray.waits import service_limit, wait
from infra.tpu.slice import TpuSlice

Manifest = dict[str, Any]

DATA_GROUP = "data"
CHECKPOINT_STEPS = "raytpu/checkpoint-steps"
"""By which the policies know how much a program loses with a host."""
UNWANTED_S = 60
"""After so long a run gives up hosts of a shape that it no longer asks for."""


def ray_cluster(config: StackConfig, workload: ClusterSpec) -> Manifest:
    """To work on by hand, through a port-forward; its slices come and go with the work."""
    manifest = _object(config, workload, "RayCluster", cluster_spec(config, workload))
    # The autoscaler changes replicas, and the API server takes a list of groups for one field: the
    # whole list is then the autoscaler's, and every change of ours a conflict.
    manifest["metadata"]["annotations"]["pulumi.com/patchForce"] = "true"
    return manifest


def ray_job(config: StackConfig, workload: JobSpec) -> Manifest:
    """Ends for good: by itself, or at its deadline."""
    spec: Manifest = {
        "entrypoint": entrypoint(config, workload),
        # A submitter of its own: one inside the head can end early and keep the job from ever
        # failing, and so from ever giving back its slices (KubeRay 4945).
        "submissionMode": "K8sJobMode",
        "backoffLimit": workload.retries,
        "activeDeadlineSeconds": _seconds(workload.deadline),
        **_ending(workload),
        "rayClusterSpec": cluster_spec(config, workload),
    }
    if kuberay(config) >= (1, 6):
        spec["preRunningDeadlineSeconds"] = _seconds(workload.start_deadline)
    manifest = _object(config, workload, "RayJob", spec)
    if isinstance(workload, SpmdSpec) and workload.checkpoint_every is not None:
        manifest["metadata"]["annotations"][CHECKPOINT_STEPS] = str(workload.checkpoint_every)
    return manifest


def ray_service(config: StackConfig, workload: ServeSpec) -> Manifest:
    """Is healthy when the model answers."""
    spec: Manifest = {
        "serveConfigV2": serve_config(config, workload),
        # A new cluster beside the old one asks for a second set of slices, and waits for ever
        # where there is none.
        "upgradeStrategy": {"type": "NewCluster" if workload.upgrade == "new_cluster" else "None"},
        # No replica runs on the head.
        "excludeHeadPodFromServeSvc": True,
        "rayClusterConfig": cluster_spec(config, workload),
    }
    manifest = _object(config, workload, "RayService", spec)
    # When this expires the service is lost for good, so `pulumi up` must have given up before.
    timeout = f"{2 * _seconds(service_limit(workload))}s"
    manifest["metadata"]["annotations"]["ray.io/initializing-timeout"] = timeout
    return manifest


def cluster_spec(config: StackConfig, workload: Workload) -> Manifest:
    """The Ray cluster of one workload.

    Ray itself scales what is worked on by hand, and where a run chooses among shapes: the operator
    would bring up all of them.
    """
    spec: Manifest = {
        "rayVersion": version("ray"),
        "headGroupSpec": head_group(config, workload),
        "workerGroupSpecs": worker_groups(config, workload),
    }
    if _autoscaled(config, workload):
        spec["enableInTreeAutoscaling"] = True
        spec["autoscalerOptions"] = _autoscaler(workload)
    if isinstance(workload, ServeSpec) and workload.redis:
        spec["gcsFaultToleranceOptions"] = _fault_tolerance(workload)
    return spec


def head_group(config: StackConfig, workload: Workload) -> Manifest:
    """Its service is of the cluster's own addresses only: who reaches the dashboard runs code."""
    return {
        "serviceType": "ClusterIP",
        # Zero CPUs keep tasks and actors off the head, which has no chip.
        "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},  # noqa: S104 - in its pod
        "template": pods.head_pod(config, workload, autoscaled=_autoscaled(config, workload)),
    }


def worker_groups(config: StackConfig, workload: Workload) -> list[Manifest]:
    if isinstance(workload, DataSpec):
        return [_data_group(config, workload)]
    tpu = config.slice(workload.slice)
    return [worker_group(config, workload, shape) for shape in tpu.shapes]


def worker_group(config: StackConfig, workload: Workload, tpu: TpuSlice) -> Manifest:
    """The copies of one shape.

    Those of a fallback are made when Ray asks for them, and so are all where a run chooses.
    """
    if isinstance(workload, DataSpec):
        raise TypeError(f"workload {workload.name} uses no slice")
    declared, scaled = config.slice(workload.slice), _autoscaled(config, workload)
    asks = scaled and not isinstance(workload, ClusterSpec)
    wanted = tpu.count if tpu.name == declared.name and not asks else 0
    return {
        "groupName": tpu.name,
        "replicas": wanted,
        "minReplicas": 0 if scaled else wanted,
        "maxReplicas": tpu.count,
        "numOfHosts": tpu.hosts,
        "rayStartParams": {},
        "labels": ray_labels(config, tpu, class_name(config, declared)),
        "template": pods.tpu_pod(config, workload, tpu, movable=migrates(config, declared)),
    }


def kuberay(config: StackConfig) -> tuple[int, ...]:
    """Major and minor of the operator."""
    if isinstance(config.cluster, LocalCluster):
        raise TypeError("the local stack has no Ray operator")
    return tuple(int(part) for part in config.cluster.kuberay.split("."))


def _data_group(config: StackConfig, workload: DataSpec) -> Manifest:
    return {
        "groupName": DATA_GROUP,
        "replicas": workload.workers,
        "minReplicas": workload.workers,
        "maxReplicas": workload.workers,
        "numOfHosts": 1,
        "rayStartParams": {},
        "template": pods.data_pod(config, workload),
    }


def _ending(workload: JobSpec) -> Manifest:
    """A job's slices go at once, however it ends.

    Rules of KubeRay 1.6 could keep the head, but know no job that was stopped: its slices would
    stay for ever.
    """
    keep_s = _seconds(workload.keep_for) if isinstance(workload, DataSpec) else 0
    return {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": keep_s}


def _autoscaled(config: StackConfig, workload: Workload) -> bool:
    if isinstance(workload, TrainSpec):
        return bool(config.slice(workload.slice).fallback)
    return isinstance(workload, ClusterSpec)


def _autoscaler(workload: Workload) -> Manifest:
    """Version 2 alone scales slices of several hosts by whole slices."""
    resources = {"cpu": "500m", "memory": "512Mi"}
    by_hand = isinstance(workload, ClusterSpec)
    idle_s = _seconds(workload.idle_timeout) if by_hand else UNWANTED_S
    options: Manifest = {
        "version": "v2",
        "idleTimeoutSeconds": idle_s,
        "resources": {"requests": resources, "limits": dict(resources)},
    }
    if not by_hand:
        # Pods that still wait for their nodes are otherwise kept for ever.
        options["env"] = [
            {"name": "RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", "value": str(UNWANTED_S)}
        ]
    return options


def _fault_tolerance(workload: ServeSpec) -> Manifest:
    """With it the service outlives its head; without, a lost head takes all replicas along."""
    redis = workload.redis
    if redis is None:
        return {}
    options: Manifest = {"redisAddress": redis.address}
    if redis.password:
        reference = {"name": workload.name, "key": secrets.REDIS_PASSWORD_KEY}
        options["redisPassword"] = {"valueFrom": {"secretKeyRef": reference}}
    return options


def _object(config: StackConfig, workload: Workload, kind: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "metadata": {
            "name": workload.name,
            "namespace": namespace(config),
            "labels": {pods.WORKLOAD_LABEL: workload.name},
            "annotations": wait(config, workload),
        },
        "spec": spec,
    }


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds())
