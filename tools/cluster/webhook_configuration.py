"""What the API server is told of the webhooks: which objects to ask about, and where."""

import base64
from typing import Any

Manifest = dict[str, Any]

MUTATING, VALIDATING = "kuberay-tpu-mutating-webhook-cfg", "kuberay-tpu-validating-webhook-cfg"
CLASSES = "compute-class-webhook-cfg"


def configurations(url: str, authority: bytes) -> list[Manifest]:
    """Those of the TPU webhook are as in its chart. Of all: if asking fails, so does the creation.

    Args:
        url: Of the server, without a path.
        authority: The certificate by which it is known.
    """

    def webhook(name: str, path: str, resource: str, **more: Any) -> Manifest:
        group, version = ("ray.io", "*") if resource == "rayclusters" else ("", "v1")
        system = ["kube-system", "kube-node-lease"]
        outside = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": system}
        rule = {
            "operations": ["CREATE"],
            "apiGroups": [group],
            "apiVersions": [version],
            "resources": [resource],
            "scope": "Namespaced",
        }
        return {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "namespaceSelector": {"matchExpressions": [outside]},
            "rules": [rule],
            "clientConfig": {
                "url": f"{url}/{path}",
                "caBundle": base64.b64encode(authority).decode(),
            },
            **more,
        }

    chips = webhook(
        "kuberay-tpu-webhook.ray-system.svc",
        "mutate",
        "pods",
        objectSelector={"matchLabels": {"app.kubernetes.io/name": "kuberay"}},
    )
    clusters = webhook("raycluster-kuberay-tpu-webhook.ray-system.svc", "validate", "rayclusters")
    classes = webhook("compute-class.gke.svc", "class", "pods")
    return [
        _configuration("MutatingWebhookConfiguration", MUTATING, chips),
        _configuration("MutatingWebhookConfiguration", CLASSES, classes),
        _configuration("ValidatingWebhookConfiguration", VALIDATING, clusters),
    ]


def _configuration(kind: str, name: str, webhook: Manifest) -> Manifest:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
