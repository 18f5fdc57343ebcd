"""The component under Pulumi's mocks: what it registers, in which order, and what ends it."""

from dataclasses import replace
from typing import Any

import pulumi
import pytest
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks

from infra.ray.kubernetes import CRD_ATTEMPTS, Workloads, check_job, try_again
from infra.ray.objects import KubernetesObject
from tests.infra.ray.stacks import SERVE, gke, shipped

SECRET_MARK = "4dabf18193072939515e22adb298388d"  # noqa: S105 - by which Pulumi marks a secret
UID = "6b2f8f0e-6c5e-4f0f-9a55-5b7d8f2a8a11"
SUCCEEDED = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
FAILED = {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded", "message": "too late"}
CHAT = {"name": "chat", "machine_type": "ct6e-standard-8t", "topology": "2x4"}


class Kubernetes(Mocks):
    def __init__(self, status: dict[str, Any]) -> None:
        self.status = status

    def call(self, args: MockCallArgs) -> Any:
        raise AssertionError(args.token)

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        metadata = {**args.inputs.get("metadata", {}), "uid": UID}
        return args.name, {**args.inputs, "metadata": metadata, "status": self.status}


class Monitor(MockMonitor):
    def __init__(self, status: dict[str, Any]) -> None:
        super().__init__(Kubernetes(status))
        self.requests: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - of the protocol
        self.requests[request.name] = request
        return super().RegisterResource(request)


class Cloud(pulumi.CustomResource):
    """Stands for the cluster and its nodes."""

    def __init__(self) -> None:
        super().__init__("test:index:Cloud", "cloud", {})


class Creator(pulumi.ProviderResource):
    def __init__(self) -> None:
        super().__init__("kubernetes", "creator")


def register(config, status=SUCCEEDED) -> dict[str, Any]:
    """Requests to the engine by name, in their order."""
    monitor = Monitor(status)
    pulumi.runtime.set_mocks(monitor.mocks, "raytpu", "dev", preview=False, monitor=monitor)

    @pulumi.runtime.test
    def run() -> pulumi.Output[str]:
        opts = pulumi.ResourceOptions(depends_on=[Cloud()])
        return Workloads("ray", config, Creator(), opts).urn

    run()
    return monitor.requests


def test_each_object_is_typed_as_the_provider_types_it_and_belongs_to_the_component():
    made = register(shipped("staging"))
    types = {name: request.type for name, request in made.items()}
    assert types["ray-namespace-research"] == "kubernetes:core/v1:Namespace"
    assert types["ray-role-raytpu-members"] == "kubernetes:rbac.authorization.k8s.io/v1:Role"
    assert types["ray-rayjob-corpus"] == "kubernetes:ray.io/v1:RayJob"
    assert (
        types["ray-computeclass-raytpu-staging-train"]
        == "kubernetes:cloud.google.com/v1:ComputeClass"
    )
    parents = {r.parent.rpartition("::")[2] for n, r in made.items() if n.startswith("ray-")}
    assert parents == {"ray"}


def test_everything_waits_for_the_cloud():
    for name, request in register(shipped("staging")).items():
        if name.startswith("ray-"):
            assert any(urn.endswith("::cloud") for urn in request.dependencies), name


def test_training_is_registered_after_the_corpus_has_been_checked():
    made = register(shipped("staging"))
    assert [*made].index("ray-rayjob-corpus") < [*made].index("ray-rayjob-pretrain")
    annotations = MessageToDict(made["ray-rayjob-pretrain"].object)["metadata"]["annotations"]
    assert annotations["raytpu/after"] == f"RayJob/corpus {UID}"


def test_what_a_service_serves_is_told_in_its_pods_so_that_it_changes_with_them():
    """By its metadata Pulumi tells an object apart: it would go before a job that is replaced."""
    made = register(shipped("existing"))
    service = MessageToDict(made["ray-rayservice-chat"].object)
    head = service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]
    assert head["metadata"]["annotations"]["raytpu/after"] == f"RayJob/pretrain {UID}"
    assert "raytpu/after" not in service["metadata"]["annotations"]


def test_a_failed_job_ends_the_run_before_what_reads_of_it_takes_a_slice():
    monitor_error = "RayJob/corpus ended as Failed .DeadlineExceeded; too late."
    with pytest.raises(pulumi.RunError, match=monitor_error):
        register(shipped("staging"), status=FAILED)


JOB = KubernetesObject(
    "RayJob/corpus",
    {"kind": "RayJob", "metadata": {"name": "corpus", "namespace": "research"}},
    finishes=True,
)


def test_the_error_of_a_failed_job_says_where_to_look_and_how_to_run_it_again():
    with pytest.raises(pulumi.RunError) as caught:
        check_job(JOB, {**FAILED, "jobStatus": "FAILED"}, "urn:of:it")
    assert str(caught.value) == (
        "RayJob/corpus ended as Failed (DeadlineExceeded; too late); see its log with `kubectl "
        "--namespace research logs job/corpus`, mend it, and run `pulumi up --replace 'urn:of:it'`"
    )


def test_of_a_log_in_a_message_the_last_line_is_shown():
    log = "failed, last logs:\n Traceback\nraytpu | error: no such bucket\n"
    with pytest.raises(pulumi.RunError, match=r"Failed \(raytpu . error: no such bucket\); see"):
        check_job(JOB, {"jobDeploymentStatus": "Failed", "message": log}, "urn")


def test_a_stopped_job_has_not_succeeded():
    """Ray calls it terminal, so the operator calls it complete."""
    with pytest.raises(pulumi.RunError, match="ended as Complete"):
        check_job(JOB, {**SUCCEEDED, "jobStatus": "STOPPED"}, "urn")


@pytest.mark.parametrize("finishes", [True, False])
def test_a_job_that_never_began_has_no_log_to_look_at(finishes):
    refused = {"jobDeploymentStatus": "ValidationFailed", "message": "backoffLimit is negative"}
    with pytest.raises(pulumi.RunError, match=r"is negative\); see `kubectl .* describe rayjob"):
        check_job(replace(JOB, finishes=finishes), refused, "urn")


@pytest.mark.parametrize("status", [{"jobDeploymentStatus": "Retrying"}, {"jobStatus": "FAILED"}])
def test_a_job_that_need_only_begin_may_fail_later(status):
    assert check_job(replace(JOB, finishes=False), status, "urn") == "RayJob/corpus"
    with pytest.raises(pulumi.RunError):
        check_job(JOB, status, "urn")


def test_a_job_that_changes_is_made_anew_and_the_old_one_goes_first():
    job = register(shipped("staging"))["ray-rayjob-pretrain"]
    assert [*job.replaceOnChanges] == ["spec"]
    assert job.deleteBeforeReplace


def test_the_values_of_a_secret_are_secret_to_the_engine():
    redis = {"address": "redis://redis:6379", "password": "in-clear"}
    request = register(gke([CHAT], [{**SERVE, "redis": redis}]))["ray-secret-chat"]
    value = MessageToDict(request.object)["stringData"]["redis-password"]
    assert SECRET_MARK in value
    assert {*request.additionalSecretOutputs} >= {"data", "stringData"}


def test_what_others_may_have_is_created_and_all_else_is_applied():
    """Applying takes over what is there."""
    made = register(shipped("staging"))
    created = {name for name, request in made.items() if "::creator::" in request.provider}
    assert created == {
        "ray-namespace-research",
        "ray-computeclass-raytpu-staging-train",
        "ray-computeclass-raytpu-staging-chat",
    }


NAMESPACE = {"kind": "Namespace", "metadata": {"name": "research"}}


@pytest.fixture
def told(monkeypatch):
    lines = []
    monkeypatch.setattr(pulumi.log, "error", lines.append)
    return lines


def error(*newest_first):
    return pulumi.ErrorHookArgs("urn", "id", "name", "type", errors=[*newest_first])


def test_a_kind_that_is_not_there_yet_is_tried_again_for_about_an_hour(told):
    unknown = 'no matches for kind "ComputeClass" in version "cloud.google.com/v1"'
    assert try_again(NAMESPACE, error(unknown))
    assert try_again(NAMESPACE, error(*[unknown] * (CRD_ATTEMPTS - 1)))
    assert not told
    assert not try_again(NAMESPACE, error(*[unknown] * CRD_ATTEMPTS))


def test_any_other_error_is_told_at_once(told):
    assert not try_again(NAMESPACE, error('admission webhook "x" denied the request'))
    assert not try_again(NAMESPACE, error())
    assert not told
    assert not try_again(NAMESPACE, error('namespaces "research" already exists'))
    [line] = told
    assert line.startswith("Namespace/research is there already")


def test_every_object_has_its_own_way_out():
    made = register(shipped("staging"))
    hooks = [hook for name, r in made.items() for hook in r.hooks.on_error if name != "ray"]
    objects = [name for name in made if name.startswith("ray-")]
    assert len({*hooks}) == len(objects)
