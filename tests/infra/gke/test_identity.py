"""Which roles the workloads and the nodes get, and that they get no other."""

from typing import Any

import pytest

from infra.config import StackConfig
from infra.gke.identity import bucket_roles, identity_args, secrets_read
from infra.gke.node_account import node_account_args
from infra.gke.registry import address, registry_args
from infra.gke.secret import secrets_args, values
from tests.infra.gke.stacks import stack

READ, WRITE = "roles/storage.objectViewer", "roles/storage.objectUser"
LOOK_UP = "roles/storage.legacyBucketReader"
DATA, CHECKPOINTS, CACHE = (
    f"acme-ml-raytpu-dev-{role}" for role in ("data", "checkpoints", "cache")
)

TRAIN = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
CHAT = {"name": "chat", "machine_type": "ct6e-standard-4t", "topology": "2x2"}
CORPUS = {"name": "corpus", "kind": "data", "vocab_size": 2048}
PRETRAIN = {
    "name": "pretrain",
    "kind": "train",
    "slice": "train",
    "data": "corpus",
    "mesh": {"data": 16},
    "steps": 300,
    "global_batch": 32,
}
SERVE = {
    "name": "chat",
    "kind": "serve",
    "slice": "chat",
    "model": "pretrain",
    "mesh": {"tensor": 4},
    "max_sequence_length": 128,
}
HUB = {
    "name": "chat",
    "kind": "serve",
    "slice": "chat",
    "engine": "vllm",
    "model": {"hub": "Qwen/Qwen3-4B"},
    "max_sequence_length": 128,
}
BY_HAND = {"name": "notebook", "kind": "cluster", "slice": "train"}

HUB_SECRET, KEY_SECRET = "raytpu-dev-hugging-face-token", "raytpu-dev-chat-api-key"
TOKEN = "hf_" + "x" * 20
WITH_TOKEN = {"hugging_face_token": TOKEN, "secret_keys": ("raytpu:hugging_face_token",)}


def whole(*workloads: dict[str, Any], **entries: Any) -> StackConfig:
    return stack(TRAIN, CHAT, workloads=[*workloads], **entries)


def roles(config: StackConfig, name: str) -> dict[str, set[str]]:
    return bucket_roles(config, config.workload(name))


def test_a_data_job_writes_data_and_reads_its_sources():
    sources = ["gs://corpora/english/*.parquet", "gs://corpora/german", "gs://books"]
    config = whole({**CORPUS, "sources": sources})
    assert roles(config, "corpus") == {DATA: {WRITE}, "corpora": {READ}, "books": {READ}}


def test_a_data_job_that_reads_what_it_writes_has_one_role_there():
    config = whole({**CORPUS, "sources": [f"gs://{DATA}/raw"]})
    assert roles(config, "corpus") == {DATA: {WRITE}}


def test_a_training_run_reads_data_and_writes_checkpoints_and_cache():
    config = whole(CORPUS, PRETRAIN)
    assert roles(config, "pretrain") == {
        DATA: {READ},
        CHECKPOINTS: {WRITE, LOOK_UP},
        CACHE: {WRITE},
    }


def test_a_training_run_on_data_of_others_reads_that_bucket_instead():
    config = whole({**PRETRAIN, "data": {"path": "gs://corpora/ready"}})
    assert roles(config, "pretrain") == {
        "corpora": {READ},
        CHECKPOINTS: {WRITE, LOOK_UP},
        CACHE: {WRITE},
    }


def test_a_service_reads_what_was_trained():
    config = whole(CORPUS, PRETRAIN, SERVE)
    assert roles(config, "chat") == {CHECKPOINTS: {READ}, CACHE: {WRITE}}


def test_a_service_of_a_models_folder_reads_that_bucket():
    config = whole({**SERVE, "model": {"path": "gs://models/qwen"}})
    assert roles(config, "chat") == {"models": {READ}, CACHE: {WRITE}}


def test_a_service_of_the_hub_needs_no_bucket():
    assert roles(whole(HUB), "chat") == {}


def test_work_by_hand_may_what_jobs_may():
    assert roles(whole(BY_HAND), "notebook") == {
        DATA: {WRITE},
        CHECKPOINTS: {WRITE, LOOK_UP},
        CACHE: {WRITE},
    }


def test_the_member_is_the_workloads_own_kubernetes_service_account():
    (role,) = identity_args(whole(CORPUS)).buckets.values()
    pool = "projects/{project_number}/locations/global/workloadIdentityPools/acme-ml.svc.id.goog"
    subject = "subject/ns/research/sa/corpus"
    assert role["member"] == f"principal://iam.googleapis.com/{pool}/{subject}"


@pytest.mark.parametrize(
    ("workloads", "name", "read"),
    [
        ([HUB], "chat", [HUB_SECRET]),
        ([CORPUS, PRETRAIN, SERVE], "chat", []),
        ([CORPUS, PRETRAIN, SERVE], "pretrain", []),
        ([BY_HAND], "notebook", []),
    ],
)
def test_only_a_service_of_the_hub_reads_the_token(workloads: Any, name: str, read: list[str]):
    config = whole(*workloads, **WITH_TOKEN)
    assert secrets_read(config, config.workload(name)) == read


def test_a_role_on_the_token_is_of_that_one_secret():
    (role,) = identity_args(whole(HUB, **WITH_TOKEN)).secrets.values()
    assert role["secret_id"] == HUB_SECRET
    assert role["role"] == "roles/secretmanager.secretAccessor"
    assert role["member"].endswith("/subject/ns/research/sa/chat")


def test_a_stack_without_a_token_keeps_no_secret():
    assert secrets_args(whole(HUB)).secrets == {}
    assert identity_args(whole(HUB)).secrets == {}


def test_the_token_is_in_no_argument():
    config = whole(HUB, **WITH_TOKEN)
    assert values(config)[HUB_SECRET].get_secret_value() == TOKEN
    made = secrets_args(config)
    assert TOKEN not in repr(made)
    assert made.secrets[HUB_SECRET].version == {"secret": f"projects/acme-ml/secrets/{HUB_SECRET}"}


def test_a_services_key_is_kept_and_read_by_that_service_alone():
    workloads = [CORPUS, PRETRAIN, {**SERVE, "api_key": "k-123"}]
    config = whole(*workloads, secret_keys=("raytpu:workloads",))
    assert [*secrets_args(config).secrets] == [KEY_SECRET]
    (role,) = identity_args(config).secrets.values()
    assert role["secret_id"] == KEY_SECRET
    assert role["member"].endswith("/sa/chat")


def test_a_secret_lies_in_the_region_of_the_nodes_only():
    (secret,) = secrets_args(whole(HUB, **WITH_TOKEN)).secrets.values()
    replication = {"user_managed": {"replicas": [{"location": "us-east5"}]}}
    assert secret.secret["replication"] == replication


def test_nodes_may_log_measure_and_pull_and_no_more():
    args = node_account_args(whole())
    member = "serviceAccount:raytpu-dev-nodes@acme-ml.iam.gserviceaccount.com"
    assert args.role == {
        "project": "acme-ml",
        "role": "roles/container.defaultNodeServiceAccount",
        "member": member,
    }
    assert {(pull["role"], pull["member"]) for pull in args.pulls.values()} == {
        ("roles/artifactregistry.reader", member)
    }


def test_nodes_pull_from_each_repository_that_holds_a_declared_image():
    images = {
        "ray": "europe-docker.pkg.dev/acme-shared/ml/team/ray:1",
        "vllm": "images.example/acme/vllm:1",
    }
    pulls = node_account_args(whole(images=images)).pulls.values()
    where = {(pull["location"], pull["project"], pull["repository"]) for pull in pulls}
    assert where == {("us-east5", "acme-ml", "raytpu-dev"), ("europe", "acme-shared", "ml")}


def test_a_tag_stands_for_one_image_for_ever():
    config = whole()
    assert registry_args(config).repository["docker_config"] == {"immutable_tags": True}
    assert registry_args(config).repository["format"] == "DOCKER"
    assert address(config) == "us-east5-docker.pkg.dev/acme-ml/raytpu-dev"
