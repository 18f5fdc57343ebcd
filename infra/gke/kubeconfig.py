"""How Kubernetes is reached: by the cluster's DNS name, as whoever is logged in to Google.

A cluster of others is reached as the user's own file says.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pulumi
import yaml

from infra.config import ExistingCluster
from infra.config.parse import is_mapping
from infra.errors import Problem

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


def file_of(cluster: ExistingCluster) -> str:
    """The file that the stack names; empty if none, and the provider looks where kubectl does.

    Not None: the SDK puts $KUBECONFIG in its place, which goes into the state, and which the
    provider cannot read if it names several files.
    """
    return str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else ""


def faults(cluster: ExistingCluster, environ: Mapping[str, str] = os.environ) -> Iterator[Problem]:
    """Why the cluster cannot even be asked for. The provider would say so in many lines."""
    if cluster.kubeconfig is None and "KUBERNETES_SERVICE_HOST" in environ:
        return  # a pod reaches its own cluster without a file
    files = [Path(file) for file in (file_of(cluster) or _default(environ)).split(os.pathsep)]
    found = [file for file in files if file.is_file()]
    named = ", ".join(map(str, files))
    if not found:
        fix = "write the path of a kubeconfig there, or set KUBECONFIG"
        yield Problem("raytpu:cluster.kubeconfig", f"there is no file {named}", fix)
        return
    yield from _context_faults(cluster, named, [_read(file) for file in found])


def _context_faults(
    cluster: ExistingCluster, named: str, read: list[dict[str, Any]]
) -> Iterator[Problem]:
    contexts = sorted(str(one["name"]) for text in read for one in text.get("contexts") or ())
    current = next((text["current-context"] for text in read if text.get("current-context")), None)
    wanted = cluster.context or current
    if wanted not in contexts:
        what = f"{named} has no context {wanted!r}" if wanted else f"{named} has no current context"
        fix = f"use one of {', '.join(contexts)}" if contexts else "write one into it"
        yield Problem("raytpu:cluster.context", what, fix)


def _read(file: Path) -> dict[str, Any]:
    """An empty one, which has no contexts, if it is no kubeconfig."""
    try:
        parsed: Any = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return parsed if is_mapping(parsed) else {}


def _default(environ: Mapping[str, str]) -> str:
    return environ.get("KUBECONFIG") or str(Path.home() / ".kube/config")


def _exec() -> dict[str, Any]:
    return {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": _PLUGIN,
        "interactiveMode": "Never",
        "provideClusterInfo": True,
        "installHint": f"Install {_PLUGIN}: gcloud components install {_PLUGIN}",
    }
