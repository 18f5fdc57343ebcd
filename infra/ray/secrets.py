"""Which secrets a workload reads, and how they reach its pods: as files, never as variables.

On a cluster that the stack makes they lie in Secret Manager, and its add-on mounts them. In a
cluster of others they are Kubernetes Secrets, and so is Redis' password everywhere: the Ray
operator takes it from nowhere else.
"""

from typing import Any

from pydantic import SecretStr

from infra.config import ExistingCluster, Hub, ServeSpec, StackConfig, Workload
from infra.gke.names import api_key_secret, google_cluster, namespace, token_secret
from infra.ray.text import to_yaml

Manifest = dict[str, Any]

SECRETS_PATH = "/secrets"
HUB_TOKEN_FILE = "hugging-face-token"  # noqa: S105 - a file's name
API_KEY_FILE = "api-key"
REDIS_PASSWORD_KEY = "redis-password"  # noqa: S105 - as above


def files(config: StackConfig, workload: Workload) -> dict[str, SecretStr]:
    """The secrets that a workload reads, by the name of the file in its pods."""
    if not isinstance(workload, ServeSpec):
        return {}
    given = {
        HUB_TOKEN_FILE: config.hugging_face_token if isinstance(workload.model, Hub) else None,
        API_KEY_FILE: workload.api_key,
    }
    return {name: secret for name, secret in given.items() if secret is not None}


def objects(config: StackConfig, workload: Workload) -> list[Manifest]:
    """What must exist before the workload's pods can mount its files."""
    read = files(config, workload)
    kept = dict(read) if isinstance(config.cluster, ExistingCluster) else {}
    if isinstance(workload, ServeSpec) and workload.redis and workload.redis.password:
        kept[REDIS_PASSWORD_KEY] = workload.redis.password
    made = [_secret(config, workload, kept)] if kept else []
    if read and not isinstance(config.cluster, ExistingCluster):
        made.append(_provider_class(config, workload))
    return made


def volume(config: StackConfig, workload: Workload) -> Manifest:
    """Of `files`."""
    if isinstance(config.cluster, ExistingCluster):
        items = [{"key": name, "path": name} for name in files(config, workload)]
        return {"name": "secrets", "secret": {"secretName": workload.name, "items": items}}
    return {
        "name": "secrets",
        "csi": {
            "driver": "secrets-store-gke.csi.k8s.io",
            "readOnly": True,
            "volumeAttributes": {"secretProviderClass": workload.name},
        },
    }


def _secret(config: StackConfig, workload: Workload, values: dict[str, SecretStr]) -> Manifest:
    """Its values are SecretStr until the engine takes them as secrets."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": workload.name, "namespace": namespace(config)},
        "type": "Opaque",
        "stringData": values,
    }


def _provider_class(config: StackConfig, workload: Workload) -> Manifest:
    project = google_cluster(config).project
    names = {
        HUB_TOKEN_FILE: token_secret(config),
        API_KEY_FILE: api_key_secret(config, workload.name),
    }
    secrets = [
        {"resourceName": f"projects/{project}/secrets/{names[file]}/versions/latest", "path": file}
        for file in files(config, workload)
    ]
    return {
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": {"name": workload.name, "namespace": namespace(config)},
        "spec": {
            "provider": "gke",
            "parameters": {"secrets": to_yaml(secrets)},
        },
    }
