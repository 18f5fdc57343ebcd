"""The real provider waits as it is told, until its limit, and the program says what to look at."""

import pytest

from tests.cluster.played import RUNNING, SUCCEEDED, PlayedOperator, condition, fine
from tests.cluster.real_stack import RealStack
from tests.cluster.seen import names, ray

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

POLLS = 6
"""For so many looks an object stays in one stage: over a second, in which `up` could go on."""
FAILED = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed"}
REFUSED = {
    "jobDeploymentStatus": "ValidationFailed",
    "reason": "ValidationFailed",
    "message": "backoffLimit must be a positive integer",
}


@pytest.fixture
def stack(control_plane, provider, tmp_path, request):  # noqa: ARG001 - built before
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:30].strip("-")
    return RealStack.apart(tmp_path, control_plane.kubeconfig, name)


class Stages:
    """Plays some stages of each kind, each for a while, and keeps in which order they were seen."""

    def __init__(self, **stages):
        self.stages = stages
        self.looks, self.seen = {}, []

    def __call__(self, one):
        name = f"{one['kind']}/{one['metadata']['name']}"
        self.looks[name] = self.looks.get(name, -1) + 1
        stages = self.stages[one["kind"]]
        stage = min(self.looks[name] // POLLS, len(stages) - 1)
        if (name, stage) not in self.seen:
            self.seen.append((name, stage))
        return stages[stage](one) if callable(stages[stage]) else stages[stage]


def upgrading(one):
    """A service whose old cluster still answers."""
    generation = one["metadata"]["generation"]
    holds = [("Ready", True), ("UpgradeInProgress", True)]
    conditions = [condition(name, holds=how, generation=generation) for name, how in holds]
    return {"observedGeneration": generation, "conditions": conditions}


def unready(one):
    generation = one["metadata"]["generation"]
    return {"conditions": [condition("Ready", holds=False, generation=generation)]}


def test_each_object_is_waited_for_before_what_needs_it(stack, control_plane):
    job = [{}, {"jobDeploymentStatus": "Initializing"}, RUNNING, SUCCEEDED]
    play = Stages(RayJob=job, RayService=[{}, unready, upgrading, fine])
    with PlayedOperator(control_plane.api, stack.name, play):
        done = stack.up()
    assert done.code == 0, done.output
    assert [one for one in play.seen if one[1] in (0, 3)] == [
        ("RayJob/corpus", 0),
        ("RayJob/corpus", 3),
        ("RayJob/pretrain", 0),
        ("RayJob/pretrain", 3),
        ("RayService/chat", 0),
        ("RayService/chat", 3),
    ]


def training_alone(stack, **terms):
    """A job that is only waited for until it has begun."""
    data, pretrain, _ = stack.declared["workloads"]
    train, _ = stack.declared["slices"]
    stack.declare(slices=[train], workloads=[data, {**pretrain, **terms}])


def test_a_job_that_need_only_begin_is_waited_for_until_it_runs(stack, control_plane):
    training_alone(stack)
    stages = Stages(RayJob=[{}, {"jobDeploymentStatus": "Initializing"}, RUNNING])

    def play(one):
        return stages(one) if one["metadata"]["name"] == "pretrain" else fine(one)

    with PlayedOperator(control_plane.api, stack.name, play):
        done = stack.up()
    assert done.code == 0, done.output
    assert ("RayJob/pretrain", 2) in stages.seen


def test_a_failed_job_ends_up_until_it_is_replaced(stack, control_plane):
    with PlayedOperator(control_plane.api, stack.name, lambda _: FAILED) as operator:
        done = stack.up()
        assert done.code != 0
        assert "RayJob/corpus ended as Failed (AppFailed); see its log with" in done.output
        assert names(control_plane.api, ray(stack.name, "rayjobs")) == ["corpus"]
        operator.play = fine
        assert stack.up().code != 0  # the new status is of a job that has ended
        urn = done.output.partition("`pulumi up --replace '")[2].partition("'")[0]
        mended = stack.up("--replace", urn)
    assert mended.code == 0, mended.output


def test_a_job_that_the_operator_refuses_ends_up_at_once(stack, control_plane):
    training_alone(stack)

    def play(one):
        return REFUSED if one["metadata"]["name"] == "pretrain" else fine(one)

    with PlayedOperator(control_plane.api, stack.name, play):
        done = stack.up()
    assert done.code != 0
    assert (
        "RayJob/pretrain ended as ValidationFailed (ValidationFailed; backoffLimit must be a "
        f"positive integer); see `kubectl --namespace {stack.name} describe rayjob pretrain`"
    ) in done.output


def test_without_an_operator_up_ends_at_its_limit_and_goes_on_later(stack, control_plane):
    training_alone(stack, start_deadline="3s")
    stack.give_up_after(seconds=2)
    data, pretrain = stack.declared["workloads"]
    stack.declare(workloads=[{**data, "start_deadline": "1s", "deadline": "3s"}, pretrain])
    done = stack.up()
    assert done.code != 0
    at = f"kubectl --namespace {stack.name}"
    told = (
        f"error: RayJob/corpus was not finished within 5 seconds: `{at} describe rayjob corpus` "
        f"and `{at} get events --field-selector type=Warning` say why; `pulumi up` goes on waiting"
    )
    assert [line.strip() for line in done.output.splitlines()].count(told) == 1, done.output
    with PlayedOperator(control_plane.api, stack.name):
        later = stack.up()
    assert later.code == 0, later.output


def test_a_service_that_never_answers_ends_up_at_its_limit(stack, control_plane):
    stack.give_up_after(seconds=3)
    data, pretrain, chat = stack.declared["workloads"]
    stack.declare(workloads=[data, pretrain, {**chat, "startup_timeout": "3s"}])

    def play(one):
        return unready(one) if one["kind"] == "RayService" else fine(one)

    with PlayedOperator(control_plane.api, stack.name, play):
        done = stack.up()
    assert done.code != 0
    wanted = "RayService/chat was not ready to serve with its newest cluster within 6 seconds: "
    assert wanted in done.output
    assert "describe rayservice chat` and" in done.output
