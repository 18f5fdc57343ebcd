"""What GKE does to pods that select a compute class, as a pure function of the manifest.

GKE adds the toleration of the class's taint itself, and refuses labels that a class decides ("About
custom ComputeClasses", read 2026-08). In which words is not documented, so these are our own.
"""

from typing import Any

from infra.gke.compute_class import CLASS_LABEL
from tools.cluster.tpu_admission import Denied

Manifest = dict[str, Any]

DECIDED_BY_CLASS = (
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-boot-disk",
    "cloud.google.com/gke-ephemeral-storage-local-ssd",
    "cloud.google.com/gke-gpu-driver-version",
    "cloud.google.com/gke-node-pool-group-name",
    "cloud.google.com/gke-spot",
    "cloud.google.com/gke-workload-type",
    "cloud.google.com/machine-family",
    "cloud.google.com/machine-type",
    "cloud.google.com/reservation-affinity",
    "cloud.google.com/reservation-name",
    "cloud.google.com/reservation-project",
    "node.kubernetes.io/instance-type",
)


def mutate(pod: Manifest) -> list[Manifest]:
    """The JSON patch for a pod that is being created; raises Denied."""
    selector = pod["spec"].get("nodeSelector", {})
    name = selector.get(CLASS_LABEL)
    if name is None:
        return []
    if clashes := [label for label in DECIDED_BY_CLASS if label in selector]:
        raise Denied(
            f"nodeSelector {', '.join(clashes)} cannot be used beside {CLASS_LABEL}; "
            "leave it to the compute class"
        )
    toleration = {"key": CLASS_LABEL, "operator": "Equal", "value": name, "effect": "NoSchedule"}
    tolerations = [*pod["spec"].get("tolerations", []), toleration]
    return [{"op": "add", "path": "/spec/tolerations", "value": tolerations}]
