"""The stand-in of Kubernetes takes what an API server takes, and plays what operators do."""

import copy

import pytest

from tests.standin.api import Made, RefusedError, UnhealthyError
from tests.standin.gcp import GoogleCloud
from tests.standin.kubernetes import WAIT_FOR, Kubernetes

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "quota", "namespace": "team"},
    "spec": {"hard": {"requests.google.com/tpu": "8"}},
}
POD = {"spec": {"containers": [{"name": "ray", "image": "registry.example/ray:1"}]}}
JOB = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": "job", "namespace": "team", "annotations": {}},
    "spec": {
        "entrypoint": "true",
        "rayClusterSpec": {"headGroupSpec": {"rayStartParams": {}, "template": POD}},
    },
}


@pytest.fixture
def server():
    kubernetes = Kubernetes(GoogleCloud())
    kubernetes.others.add("others.example")
    server = "server: 'https://others.example'"
    kubernetes.configs["dev"] = {"kubeconfig": f"clusters: [{{cluster: {{{server}}}}}]"}
    return kubernetes


def make(server, *objects):
    for made in [Made("dev", "", one) for one in objects]:
        server.create(made)
        server.made[server.identify(made)] = made


def waiting(condition):
    job = copy.deepcopy(JOB)
    job["metadata"]["annotations"][WAIT_FOR] = condition
    return job


@pytest.mark.parametrize("one", [NAMESPACE, QUOTA, JOB])
def test_a_sound_object_is_taken(server, one):
    assert [*server.faults(Made("dev", "", one))] == []


@pytest.mark.parametrize(
    ("one", "words"),
    [
        ({**NAMESPACE, "metadata": {"name": "Team"}}, '"Team" is invalid'),
        ({**QUOTA, "metadata": {"name": "quota"}}, "has no namespace"),
        ({**QUOTA, "spec": {"hards": {}}}, "'hards' was unexpected"),
        ({**JOB, "spec": {**JOB["spec"], "entrypoints": ""}}, "'entrypoints' was unexpected"),
    ],
)
def test_what_the_api_server_refuses_is_refused(server, one, words):
    assert words in " ".join(server.faults(Made("dev", "", one)))


def test_an_object_needs_its_namespace(server):
    with pytest.raises(RefusedError, match='namespaces "team" not found'):
        make(server, QUOTA)
    make(server, NAMESPACE, QUOTA)


def test_an_object_needs_a_cluster(server):
    server.others.clear()
    with pytest.raises(RefusedError, match=r"unreachable: others\.example"):
        make(server, NAMESPACE)


@pytest.mark.parametrize(
    "condition",
    [
        "jsonpath={.status.jobStatus}",
        "jsonpath={.status.jobDeploymentStatus}=Complete",
        '["jsonpath={.status.jobStatus}=SUCCEEDED", "jsonpath={.status.endTime}"]',
        'jsonpath={[?@.jobDeploymentStatus == "Complete" || @.jobDeploymentStatus == "Failed"]}',
        "jsonpath={[?@.nothing || @.jobStatus]}",
    ],
)
def test_a_job_reaches_what_is_waited_for(server, condition):
    make(server, NAMESPACE, waiting(condition))


@pytest.mark.parametrize(
    "condition",
    [
        '["condition=Never", "jsonpath={.status.endTime}"]',
        'jsonpath={[?@.jobDeploymentStatus == "Failed"]}',
        'jsonpath={[?@.nothing || @.jobStatus == "FAILED"]}',
    ],
)
def test_a_job_never_reaches_what_does_not_come(server, condition):
    with pytest.raises(UnhealthyError, match="timed out waiting for the condition"):
        make(server, NAMESPACE, waiting(condition))


def test_a_stuck_job_does_not(server):
    server.stuck.add("RayJob")
    with pytest.raises(UnhealthyError, match=r"RayJob/team/job.* timed out waiting"):
        make(server, NAMESPACE, waiting("jsonpath={.status.jobStatus}"))


def test_a_wait_that_the_provider_cannot_read_is_refused(server):
    with pytest.raises(RefusedError, match=r"expected a .* prefix, got \"status=Running\""):
        make(server, NAMESPACE, waiting("status=Running"))
