"""How Kubernetes is reached: by the cluster's DNS name, as whoever is logged in to Google."""

from typing import Any

import pulumi

_PLUGIN = "gke-gcloud-auth-plugin"


def kubeconfig(name: str, server: pulumi.Input[str]) -> dict[str, Any]:
    """Holds no credential: the plugin asks gcloud, or the service account it runs as, for a token.

    Nor a certificate: the DNS name has one that any machine trusts.
    """
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": {"exec": _exec()}}],
    }


def command(name: str, location: str, project: str) -> str:
    """What a user runs to get the same for kubectl."""
    return (
        f"gcloud container clusters get-credentials {name} --location {location} "
        f"--project {project} --dns-endpoint"
    )


def _exec() -> dict[str, Any]:
    return {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": _PLUGIN,
        "interactiveMode": "Never",
        "provideClusterInfo": True,
        "installHint": f"Install {_PLUGIN}: gcloud components install {_PLUGIN}",
    }
