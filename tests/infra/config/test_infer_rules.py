"""Batch inference as a stack declares it: what fits, and what is refused at once."""

import pytest

from infra.config import InferSpec
from tests.infra.config.stack import changed, faults, on_gke, only, read, remarks
from workloads.settings import MeshSettings

INFER = {
    "name": "answers",
    "kind": "infer",
    "slice": "batch",
    "model": "pretrain",
    "prompts": ["prompts.jsonl"],
    "max_sequence_length": 128,
}
SLICE = {"name": "batch", "machine_type": "ct6e-standard-4t", "topology": "4x4"}


def local(**changes):
    return changed(slices__2=SLICE, workloads__3={**INFER, **changes})


def gke(**changes):
    prompts = {"prompts": ["gs://acme/prompts/*.parquet"]}
    return on_gke(slices__2=SLICE, workloads__3={**INFER, **prompts, **changes})


def test_a_sound_job_is_taken_locally_and_on_gke():
    assert faults(local()) == []
    assert faults(gke()) == []


def test_by_default_each_host_has_a_copy_of_the_model():
    config = read(local())
    tpu = config.slice("batch")
    assert (tpu.workers, tpu.chips_per_host) == (4, 4)
    answers = config.workload("answers")
    assert isinstance(answers, InferSpec)
    mesh = answers.settings().mesh_on(tpu.workers, tpu.chips_per_host)
    assert mesh == MeshSettings(data=4, tensor=4)


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"slice": "none"}, "slice", "'none' is no slice; use 'train' or 'chat' or 'batch'"),
        ({"model": "corpus"}, "model", "'corpus' is no workload of kind train; use 'pretrain'"),
        ({"prompts": []}, "prompts", "is empty; write at least 1"),
        ({"mesh": {"data": 4}}, "mesh", "data 4 x tensor 1 = 4 does not cover the 16 chips"),
        ({"mesh": {"data": 2, "tensor": 8}}, "mesh.tensor", "does not divide key_value_heads 4"),
        ({"batch_size": 7}, "batch_size", "7 is no multiple of mesh axis data, which is 4"),
        ({"max_tokens": 128}, "max_tokens", "leaves no room for a prompt: max_sequence_length is"),
        ({"task": "guess"}, "task", "use 'generate' or 'score'"),
        ({"top_p": 0}, "top_p", "use more than 0"),
        ({"temprature": 1}, "temprature", "did you mean temperature?"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_place(changes, where, words):
    assert words in only(faults(local(**changes)), f"workloads[3].{where}")


def test_to_score_takes_the_whole_length():
    assert faults(local(task="score", max_tokens=128)) == []


def test_files_of_this_machine_are_out_of_reach_of_pods():
    lines = faults(gke(prompts=["prompts.jsonl", "gs://*"], model={"path": "models/a"}))
    path, pattern, model = sorted(lines, key=lambda line: "model" in line)
    assert "prompts[0]: 'prompts.jsonl' is on this machine" in path
    assert "prompts[1]: 'gs://*' names no bucket" in pattern
    assert "model.path: 'models/a' is on this machine" in model


def test_on_gke_a_slice_is_of_one_workload_and_locally_of_several_jobs():
    assert "is also the slice of raytpu:workloads[1]" in only(
        faults(gke(slice="train")), "workloads[3].slice"
    )
    assert faults(local(slice="train", mesh={"data": 16}, batch_size=64)) == []
    held = only(faults(local(slice="chat", mesh={"tensor": 4})), "workloads[3].slice")
    assert "is held by raytpu:workloads[2], which serves from all copies of it" in held


def test_a_model_is_as_large_as_its_slice_holds():
    large = {"layers": 48, "hidden_size": 8192, "intermediate_size": 28672, "attention_heads": 64}
    stack = local(mesh={"data": 16})
    stack["workloads"][1] |= {"model": large | {"head_dim": 128, "key_value_heads": 8}}
    [line] = [line for line in faults(stack) if line.startswith("raytpu:workloads[3]")]
    assert "weights and the cache take" in line
    assert "of each chip, and one of v6e has 32; use a larger mesh.tensor" in line


def test_longer_than_trained_is_remarked():
    line = only(remarks(local(max_sequence_length=256)), "workloads[3].max_sequence_length")
    assert "256 is longer than any sequence the model is trained on, which have 128" in line


def test_a_deadline_holds_for_it_as_for_every_job():
    line = only(faults(gke(deadline="1h")), "workloads[3].deadline")
    assert "1h leaves no time to run" in line
