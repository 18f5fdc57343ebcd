"""The order in which a stack's objects are made, what each waits for, and what replaces it."""

import pytest

from infra.ray.objects import objects
from infra.ray.waits import ENDED, STARTED
from tests.infra.config.stack import SOUND, read
from tests.infra.ray.stacks import FILES, TRAIN, gke, made, shipped, team

V6E = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}


@pytest.mark.parametrize("stack", FILES)
def test_every_object_comes_after_all_that_it_needs(stack):
    seen = set()
    for one in objects(shipped(stack)):
        assert set(one.after) <= seen
        assert one.key not in seen
        seen.add(one.key)


def before(found, key):
    """All that is made before an object, however indirectly."""
    return {*found[key].after}.union(*(before(found, one) for one in found[key].after))


@pytest.mark.parametrize("stack", ["staging", "prod", "existing"])
def test_training_waits_for_its_corpus_and_all_for_quota_policy_and_account(stack):
    found = made(shipped(stack))
    assert found["RayJob/corpus"].finishes
    assert "RayJob/corpus" in before(found, "RayJob/pretrain")
    for key in ("RayJob/corpus", "RayJob/pretrain", "RayService/chat"):
        account = f"ServiceAccount/{key.partition('/')[2]}"
        guards = {"Namespace/" + team(shipped(stack)).name, "ResourceQuota/raytpu"}
        assert guards | {"NetworkPolicy/raytpu-default", account} <= before(found, key)


def test_a_service_waits_for_the_training_of_its_model_and_no_other():
    assert "RayJob/pretrain" in before(made(shipped("existing")), "RayService/chat")
    assert "RayJob/pretrain" not in before(made(shipped("prod")), "RayService/chat")


def test_a_pod_that_selects_a_class_comes_after_it():
    found = made(shipped("staging"))
    assert "ComputeClass/raytpu-staging-train" in before(found, "RayJob/pretrain")


# What a job says, and until when and for how many seconds `pulumi up` waits.
WAITS = [
    ({}, STARTED, 3600 + 120),
    ({"start_deadline": "12h"}, STARTED, 43_200 + 120),
    ({"wait_for": "finish", "deadline": "2h"}, ENDED, 7200 + 120),
    ({"wait_for": "finish", "deadline": "2h", "retries": 2}, ENDED, 3 * 7200 + 120),
]


@pytest.mark.parametrize(("terms", "condition", "seconds"), WAITS)
def test_a_job_is_waited_for_as_the_stack_says(terms, condition, seconds):
    found = made(gke([V6E], [{**TRAIN, **terms}]))["RayJob/pretrain"]
    assert found.finishes == ("wait_for" in terms)
    annotations = found.manifest["metadata"]["annotations"]
    assert annotations["pulumi.com/waitFor"] == condition
    assert annotations["pulumi.com/timeoutSeconds"] == str(seconds)


def test_a_job_whose_output_is_read_is_waited_for_to_its_end_whatever_it_says():
    annotations = made(shipped("prod"))["RayJob/corpus"].manifest["metadata"]["annotations"]
    assert annotations["pulumi.com/waitFor"] == ENDED


def test_other_terms_are_another_job():
    """The operator never looks at a job's terms again once it has begun."""
    assert made(shipped("prod"))["RayJob/pretrain"].replace_on == ("spec",)


def test_another_image_replaces_a_service_and_another_count_does_not():
    """With upgradeStrategy None the operator would ignore the image."""
    found = made(shipped("prod"))["RayService/chat"]
    assert found.replace_on == (
        "spec.rayClusterConfig.headGroupSpec",
        "spec.rayClusterConfig.workerGroupSpecs[*].template",
        "spec.rayClusterConfig.rayVersion",
    )


def test_what_the_autoscaler_changes_is_its_own():
    found = made(shipped("two-shapes"))["RayCluster/interactive"]
    assert "spec.workerGroupSpecs[*].replicas" in found.ignore
    assert found.manifest["metadata"]["annotations"]["pulumi.com/patchForce"] == "true"
    for stack in ("staging", "prod"):
        for other in made(shipped(stack)).values():
            assert not other.ignore
            assert "pulumi.com/patchForce" not in str(other.manifest)


def test_a_local_stack_has_no_kubernetes_objects():
    with pytest.raises(TypeError, match="namespace"):
        objects(read(SOUND))
