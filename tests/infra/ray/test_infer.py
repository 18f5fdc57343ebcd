"""Batch inference on Kubernetes: a job on a slice, with the model mounted and rights of its own."""

import json
import shlex

from infra.gke.identity import LOOK_UP, READ, WRITE, bucket_roles
from infra.local.stack import code_digest
from infra.ray.waits import must_finish
from tests.infra.ray.stacks import TRAIN, cluster_of, gke, made

TRAINED = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
BATCH = {"name": "batch", "machine_type": "ct6e-standard-4t", "topology": "2x4"}
INFER = {
    "name": "answers",
    "kind": "infer",
    "slice": "batch",
    "model": "pretrain",
    "prompts": ["gs://questions/it's $HOME.jsonl"],
}


def stack(**changes):
    return gke([TRAINED, BATCH], [TRAIN, {**INFER, **changes}])


def test_it_is_a_job_on_all_hosts_of_its_slice_after_the_training_that_it_reads():
    one = made(stack())["RayJob/answers"]
    [group] = cluster_of(one.manifest)["workerGroupSpecs"]
    assert (group["groupName"], group["replicas"], group["numOfHosts"]) == ("batch", 1, 2)
    assert "RayJob/pretrain" in one.after
    assert one.manifest["spec"]["ttlSecondsAfterFinished"] == 0  # chips cost
    config = stack()
    assert must_finish(config, config.workload("pretrain"))


def test_its_command_comes_through_two_shells():
    command = made(stack())["RayJob/answers"].manifest["spec"]["entrypoint"]
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "workloads.infer.main"]
    arguments = dict(zip(words[3::2], words[4::2], strict=True))
    assert json.loads(arguments["--settings"])["prompts"] == ["gs://questions/it's $HOME.jsonl"]
    assert "$" not in arguments["--settings"]
    assert json.loads(arguments["--slice"])["hosts"] == 2
    assert arguments["--model"] == "/model"
    assert arguments["--output"] == "gs://acme-ml-raytpu-dev-data/answers"


def test_every_pod_sees_the_models_folder():
    cluster = cluster_of(made(stack())["RayJob/answers"].manifest)
    pods = [cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]]
    for pod in pods:
        [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "model"]
        attributes = volume["csi"]["volumeAttributes"]
        assert attributes["bucketName"] == "acme-ml-raytpu-dev-checkpoints"
        assert attributes["mountOptions"].endswith("/export")
        [mount] = [
            one for one in pod["spec"]["containers"][0]["volumeMounts"] if one["name"] == "model"
        ]
        assert (mount["mountPath"], mount["readOnly"]) == ("/model", True)


def test_it_may_read_its_model_and_prompts_and_write_its_answers_alone():
    config = stack()
    assert bucket_roles(config, config.workload("answers")) == {
        "acme-ml-raytpu-dev-data": {LOOK_UP, WRITE},  # Ray Train keeps its state there
        "acme-ml-raytpu-dev-checkpoints": {READ},
        "acme-ml-raytpu-dev-cache": {WRITE},
        "questions": {READ},
    }


def test_its_code_is_that_of_all_kinds_that_it_runs():
    config = stack()
    digests = {code_digest(workload) for workload in config.workloads}
    assert len(digests) == 2
