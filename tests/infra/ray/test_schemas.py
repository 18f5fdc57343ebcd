"""Every object of every stack is what the API server takes, by Kubernetes' own schemas and rules.

Not covered: KubeRay 1.7, whose module Go's proxy does not give.
"""

import copy

import kubernetes_validate
import pytest

from tests.infra.ray.stacks import FILES, made, shipped
from tests.schemas import crd

KUBERNETES = "1.33"
VERSIONS = {
    "ComputeClass": ["8067eae"],
    "SecretProviderClass": ["v1.4.8"],
    "RayJob": ["v1.5.0", "v1.6.1"],
    "RayService": ["v1.5.0", "v1.6.1"],
    "RayCluster": ["v1.5.0", "v1.6.1"],
}


@pytest.mark.parametrize("stack", FILES)
def test_kubernetes_takes_every_object(stack):
    for one in made(shipped(stack)).values():
        if one.manifest["kind"] not in VERSIONS | {"Secret": []}:
            kubernetes_validate.validate(one.manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize("stack", FILES)
def test_every_custom_resource_keeps_the_structure_and_the_rules_of_its_crd(stack):
    for one in made(shipped(stack)).values():
        for version in VERSIONS.get(one.manifest["kind"], []):
            assert crd.faults(one.manifest, version) == []


@pytest.mark.parametrize("stack", FILES)
def test_kubernetes_takes_every_pod(stack):
    """The CRDs repeat the pod's fields, but few of Kubernetes' limits."""
    for one in made(shipped(stack)).values():
        for template in _templates(one.manifest):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "pod", **template["metadata"]},
                "spec": template["spec"],
            }
            kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def _templates(value):
    if isinstance(value, list):
        for one in value:
            yield from _templates(one)
    if isinstance(value, dict):
        if "template" in value:
            yield value["template"]
        for one in value.values():
            yield from _templates(one)


def _class():
    return copy.deepcopy(made(shipped("staging"))["ComputeClass/raytpu-staging-train"].manifest)


# What is spoilt in the first priority of a class, and a word of what the CRD says of it.
SPOILT = [
    ({"flexStart": {"enabled": True}}, "flexStart"),
    ({"reservations": {"affinity": "None", "specific": [{"name": "r"}]}}, "Specific"),
    ({"reservations": {"affinity": "Specific"}}, "specific"),
    ({"nodepools": ["mine"]}, "nodepools"),
    ({"machineType": "ct6e-standard-4t", "machineFamily": "ct6e"}, "machineFamily"),
    ({"priorityScore": 5}, "priorityScore"),
    ({"spots": True}, "Additional properties"),
    ({"tpu": {"type": "tpu-v6e-slice", "count": "4", "topology": "4x4"}}, "not of type"),
]


@pytest.mark.parametrize(("change", "word"), SPOILT, ids=[str(next(iter(c))) for c, _ in SPOILT])
def test_the_rules_of_a_class_find_what_is_spoilt(change, word):
    spoilt = _class()
    spoilt["spec"]["priorities"][0] |= change
    found = crd.faults(spoilt, "8067eae")
    assert found
    assert word.lower() in " ".join(found).lower()


def test_the_rules_of_a_ray_job_find_what_is_spoilt():
    job = copy.deepcopy(made(shipped("staging"))["RayJob/pretrain"].manifest)
    condition = {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "ttlSeconds": 0}
    job["spec"]["deletionStrategy"] = {
        "deletionRules": [{"policy": "DeleteCluster", "condition": condition}]
    }
    assert crd.faults(job, "v1.6.1") == [
        (
            "spec.deletionStrategy.deletionRules[0].condition: JobStatus and JobDeploymentStatus "
            "cannot be used together within the same deletion condition."
        )
    ]
    assert "Additional properties" in " ".join(crd.faults(job, "v1.5.0"))


def test_the_rules_are_there_to_be_judged():
    """Without them every object would pass."""
    assert len(crd.rules("ComputeClass", "8067eae")) >= 60
    assert len(crd.rules("RayJob", "v1.6.1")) >= 4
