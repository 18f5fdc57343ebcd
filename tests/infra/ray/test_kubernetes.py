"""The component under Pulumi's mocks: what it registers, in which order, and what ends it."""

from typing import Any

import pulumi
import pytest
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks

from infra.ray.kubernetes import CRD_ATTEMPTS, Workloads, check_success, kind_may_still_come
from tests.infra.ray.stacks import SERVE, gke, shipped

SECRET_MARK = "4dabf18193072939515e22adb298388d"  # noqa: S105 - by which Pulumi marks a secret
SUCCEEDED = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
FAILED = {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded", "message": "too late"}
CHAT = {"name": "chat", "machine_type": "ct6e-standard-8t", "topology": "2x4"}


class Kubernetes(Mocks):
    def __init__(self, status: dict[str, Any]) -> None:
        self.status = status

    def call(self, args: MockCallArgs) -> Any:
        raise AssertionError(args.token)

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return args.name, {**args.inputs, "status": self.status}


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


def register(config, status=SUCCEEDED) -> dict[str, Any]:
    """Requests to the engine by name, in their order."""
    monitor = Monitor(status)
    pulumi.runtime.set_mocks(monitor.mocks, "raytpu", "dev", preview=False, monitor=monitor)

    @pulumi.runtime.test
    def run() -> pulumi.Output[str]:
        opts = pulumi.ResourceOptions(depends_on=[Cloud()])
        return Workloads("ray", config, opts).urn

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
    assert annotations["raytpu/after"] == "RayJob/corpus"


def test_a_failed_job_ends_the_run_before_what_reads_of_it_takes_a_slice():
    monitor_error = "RayJob/corpus ended as Failed .DeadlineExceeded; too late."
    with pytest.raises(pulumi.RunError, match=monitor_error):
        register(shipped("staging"), status=FAILED)


def test_the_error_of_a_failed_job_says_where_to_look_and_how_to_run_it_again():
    with pytest.raises(pulumi.RunError) as caught:
        check_success("RayJob/corpus", FAILED, "urn:of:it")
    assert str(caught.value) == (
        "RayJob/corpus ended as Failed (DeadlineExceeded; too late); see its log with "
        "`kubectl logs job/corpus`, mend it, and run `pulumi up --replace 'urn:of:it'`"
    )


def test_a_stopped_job_has_not_succeeded():
    """Ray calls it terminal, so the operator calls it complete."""
    with pytest.raises(pulumi.RunError, match="ended as Complete"):
        check_success("RayJob/corpus", {**SUCCEEDED, "jobStatus": "STOPPED"}, "urn")


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


def error(*told):
    return pulumi.ErrorHookArgs("urn", "id", "name", "type", errors=[*told])


def test_a_kind_that_is_not_there_yet_is_tried_again_for_about_an_hour():
    unknown = 'no matches for kind "ComputeClass" in version "cloud.google.com/v1"'
    assert kind_may_still_come(error(unknown))
    assert kind_may_still_come(error(*[unknown] * (CRD_ATTEMPTS - 1)))
    assert not kind_may_still_come(error(*[unknown] * CRD_ATTEMPTS))


def test_any_other_error_is_told_at_once():
    assert not kind_may_still_come(error('admission webhook "x" denied the request'))
    assert not kind_may_still_come(error("the namespace does not exist"))
    assert not kind_may_still_come(error())


def test_only_kinds_that_an_add_on_brings_are_tried_again():
    made = register(shipped("staging"))
    hooked = {name for name, request in made.items() if request.hooks.on_error}
    assert hooked == {
        "ray-computeclass-raytpu-staging-train",
        "ray-computeclass-raytpu-staging-chat",
        "ray-rayjob-corpus",
        "ray-rayjob-pretrain",
        "ray-rayservice-chat",
    }
