"""Secrets reach pods as files, and stand in clear text in no manifest."""

import json

import pytest
import yaml
from pydantic import SecretStr

from infra.config import load
from infra.config.stackfile import read
from tests.infra.config.stack import pulumi
from tests.infra.ray.stacks import FILES, SERVE, TRAIN, cluster_of, gke, made

SECRETS_PATH = "/secrets"
CHAT = {"name": "chat", "machine_type": "ct6e-standard-8t", "topology": "2x4"}
TRAINED = {**SERVE, "engine": "jax", "model": {"path": "gs://models/ours"}}
KEYED = {**TRAINED, "api_key": "key-in-clear"}


def of_others():
    """In a cluster of others, with both secrets."""
    stack = {
        "environment": "dev",
        "cluster": {"mode": "existing", "storage": "gs://bucket/folder"},
        "team": {"name": "research", "cost_center": "ml"},
        "images": {"ray": "registry.example/ray:1", "vllm": "registry.example/vllm:1"},
        "hugging_face_token": "token-in-clear",
        "slices": [CHAT, {**CHAT, "name": "hub"}],
        "workloads": [KEYED, {**SERVE, "name": "hub", "slice": "hub"}],
    }
    keys = ["raytpu:workloads", "raytpu:hugging_face_token"]
    return load(pulumi(stack), stack="dev", secret_keys=keys)


def text(config):
    return json.dumps([one.manifest for one in made(config).values()], default=repr)


def service(config):
    return made(config)["RayService/chat"].manifest


def test_on_a_cluster_of_the_stack_files_come_from_secret_manager():
    config = gke([CHAT], [KEYED])
    found = made(config)["SecretProviderClass/chat"].manifest
    assert found["spec"]["provider"] == "gke"
    assert yaml.safe_load(found["spec"]["parameters"]["secrets"]) == [
        {
            "resourceName": "projects/acme-ml/secrets/raytpu-dev-chat-api-key/versions/latest",
            "path": "api-key",
        }
    ]
    assert "Secret/chat" not in made(config)
    assert "in-clear" not in text(config)


def test_a_token_of_the_hub_is_mounted_where_the_hub_is_used():
    config = load(read(FILES["v5e"]), stack="v5e", encrypted=True)
    cluster = cluster_of(service(config))
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        (container,) = group["template"]["spec"]["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        assert variables["HF_TOKEN_PATH"] == f"{SECRETS_PATH}/hugging-face-token"
        assert "HF_TOKEN" not in variables
        mount = {"name": "secrets", "mountPath": "/secrets", "readOnly": True}
        assert mount in container["volumeMounts"]
        (volume,) = (v for v in group["template"]["spec"]["volumes"] if v["name"] == "secrets")
        assert volume["csi"]["driver"] == "secrets-store-gke.csi.k8s.io"
        assert volume["csi"]["volumeAttributes"] == {"secretProviderClass": "chat"}


def test_the_builder_is_told_where_the_key_lies_not_what_it_is():
    config = gke([CHAT], [KEYED])
    (application,) = yaml.safe_load(service(config)["spec"]["serveConfigV2"])["applications"]
    assert application["args"]["api_key_file"] == "/secrets/api-key"


def test_in_a_cluster_of_others_files_come_from_a_kubernetes_secret():
    config = of_others()
    values = {
        name: made(config)[f"Secret/{name}"].manifest["stringData"] for name in ("chat", "hub")
    }
    assert values == {
        "chat": {"api-key": SecretStr("key-in-clear")},
        "hub": {"hugging-face-token": SecretStr("token-in-clear")},
    }
    assert "in-clear" not in text(config)
    cluster = cluster_of(service(config))
    volumes = cluster["headGroupSpec"]["template"]["spec"]["volumes"]
    items = [{"key": "api-key", "path": "api-key"}]
    assert {"name": "secrets", "secret": {"secretName": "chat", "items": items}} in volumes


def test_the_password_of_redis_is_a_kubernetes_secret_and_no_file():
    redis = {"address": "redis://redis:6379", "password": "password-in-clear"}
    config = gke([CHAT], [{**SERVE, "redis": redis}])
    secret = made(config)["Secret/chat"].manifest
    assert secret["stringData"] == {"redis-password": SecretStr("password-in-clear")}
    assert "in-clear" not in text(config)
    assert "SecretProviderClass/chat" not in made(config)


def test_a_model_that_was_trained_here_needs_no_token_of_the_hub():
    changes = {"hugging_face_token": "token-in-clear"}
    train = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
    mesh = {"data": 2, "tensor": 4}
    trained = {**SERVE, "model": "pretrain", "engine": "jax", "mesh": mesh}
    stack = gke(
        [train, CHAT], [TRAIN, trained], secret_keys=["raytpu:hugging_face_token"], **changes
    )
    assert "/secrets" not in text(stack)


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_a_workload_without_secrets_mounts_none(stack):
    config = load(read(FILES[stack]), stack=stack, encrypted=True)
    assert '"secrets"' not in json.dumps(service(config))
