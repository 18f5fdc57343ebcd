"""A run that starts from a checkpoint, on Kubernetes: what it mounts, may read, and waits for."""

import shlex

from infra.gke.identity import LOOK_UP, READ, WRITE, bucket_roles
from infra.ray.waits import must_finish
from tests.infra.ray.stacks import TRAIN, cluster_of, gke, made

FIRST = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
SECOND = {"name": "tune", "machine_type": "ct6e-standard-4t", "topology": "2x4"}
MODEL = {"path": "gs://models/Qwen3-4B"}
CORPUS = {"name": "notes", "kind": "data", "tokenizer": MODEL, "sequence_length": 128}
TUNE = {
    "name": "tune",
    "kind": "train",
    "slice": "tune",
    "data": "notes",
    "base": MODEL,
    "mesh": {"fsdp": 8},
    "lora": {"rank": 16, "alpha": 32},
    "steps": 100,
    "global_batch": 32,
}


def stack(**changes):
    return gke([FIRST, SECOND], [CORPUS, TRAIN, {**TUNE, **changes}])


def arguments(config, key):
    words = shlex.split(made(config)[key].manifest["spec"]["entrypoint"])
    return dict(zip(words[3::2], words[4::2], strict=True))


def mounted(config):
    """Bucket and mount options of the model, on each kind of pod of the run."""
    cluster = cluster_of(made(config)["RayJob/tune"].manifest)
    pods = [cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]]
    for pod in pods:
        [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "model"]
        attributes = volume["csi"]["volumeAttributes"]
        yield attributes["bucketName"], attributes["mountOptions"]


def test_a_checkpoint_is_mounted_on_every_pod_and_the_job_is_told_where():
    assert [*mounted(stack())] == [("models", "implicit-dirs,only-dir:Qwen3-4B")] * 2
    assert arguments(stack(), "RayJob/tune")["--base"] == "/model"
    assert arguments(stack(), "RayJob/notes")["--tokenizer"] == "gs://models/Qwen3-4B"


def test_a_run_from_random_weights_mounts_no_model():
    cluster = cluster_of(made(stack())["RayJob/pretrain"].manifest)
    volumes = cluster["headGroupSpec"]["template"]["spec"].get("volumes", [])
    assert "model" not in [one["name"] for one in volumes]
    assert "--base" not in arguments(stack(), "RayJob/pretrain")


def test_the_model_may_be_read_by_who_reads_it_and_by_nobody_else():
    config = stack()
    may = {one.name: bucket_roles(config, one).get("models") for one in config.workloads}
    assert may == {"notes": {READ}, "pretrain": None, "tune": {READ}}


def test_a_run_that_starts_from_another_waits_for_its_end_and_reads_its_export():
    config = stack(base="pretrain")
    assert "RayJob/pretrain" in made(config)["RayJob/tune"].after
    assert must_finish(config, config.workload("pretrain"))
    assert not must_finish(stack(), stack().workload("pretrain"))
    for bucket, options in mounted(config):
        assert bucket == "acme-ml-raytpu-dev-checkpoints"
        assert options.endswith("/export")
    roles = bucket_roles(config, config.workload("tune"))
    assert roles["acme-ml-raytpu-dev-checkpoints"] == {LOOK_UP, WRITE}
