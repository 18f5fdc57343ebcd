from typing import Any

import pytest

from infra.gke.storage import storage_args
from tests.infra.gke.stacks import stack


def buckets(**entries: Any) -> dict[str, dict[str, Any]]:
    return {**storage_args(stack(**entries)).buckets}


def test_there_is_a_bucket_a_role():
    assert {role: bucket["name"] for role, bucket in buckets().items()} == {
        "data": "acme-ml-raytpu-dev-data",
        "checkpoints": "acme-ml-raytpu-dev-checkpoints",
        "cache": "acme-ml-raytpu-dev-cache",
    }


@pytest.mark.parametrize("role", ["data", "checkpoints", "cache"])
def test_no_bucket_can_ever_be_public(role: str):
    bucket = buckets()[role]
    assert bucket["uniform_bucket_level_access"] is True
    assert bucket["public_access_prevention"] == "enforced"


@pytest.mark.parametrize("role", ["data", "checkpoints", "cache"])
def test_a_bucket_lies_in_the_region_of_the_nodes_as_google_writes_it(role: str):
    assert buckets(cluster={"location": "us-east5-b"})[role]["location"] == "US-EAST5"


@pytest.mark.parametrize(
    ("environment", "emptied"), [("dev", ["cache"]), ("staging", ["cache"]), ("prod", [])]
)
def test_only_a_cache_outside_prod_is_emptied_with_the_stack(environment: str, emptied: list[str]):
    made = buckets(environment=environment)
    assert [role for role, bucket in made.items() if bucket["force_destroy"]] == emptied
    assert all("force_destroy" in bucket for bucket in made.values())


def test_what_a_training_run_deletes_is_not_paid_for_any_longer():
    kept = {role: bucket["soft_delete_policy"] for role, bucket in buckets().items()}
    assert kept == {
        "data": {"retention_duration_seconds": 604_800},
        "checkpoints": {"retention_duration_seconds": 0},
        "cache": {"retention_duration_seconds": 0},
    }


def test_only_the_cache_grows_old():
    deletes = {
        role: [rule["condition"] for rule in bucket["lifecycle_rules"] if rule["action"] == DELETE]
        for role, bucket in buckets().items()
    }
    assert deletes == {"data": [], "checkpoints": [], "cache": [{"age": 30}]}


def test_uploads_of_lost_hosts_are_cleared_away_everywhere():
    for bucket in buckets().values():
        assert bucket["lifecycle_rules"][0]["action"] == {"type": "AbortIncompleteMultipartUpload"}


DELETE = {"type": "Delete"}
