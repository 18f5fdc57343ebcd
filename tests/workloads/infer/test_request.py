"""What is refused before a slice is taken: all of it at once, in the words of the stack file."""

import json
import shutil

import pytest

from tests.workloads.simulated import CONTRACT
from workloads.errors import UserError
from workloads.infer.job import Request
from workloads.infer.main import main
from workloads.model.config import fingerprint


def request(settings, folder, **changes):
    return Request(CONTRACT, settings(**changes), str(folder), "out")


def faults(made):
    with pytest.raises(UserError) as refusal:
        made.check()
    return refusal.value.faults


def test_a_sound_request_passes_with_a_copy_of_the_model_on_each_host(settings, shallow_folder):
    made = request(settings, shallow_folder)
    made.check()
    assert str(made.mesh) == "data 2 x tensor 4"


def test_everything_that_does_not_fit_is_told_at_once(settings, shallow_folder):
    made = request(
        settings,
        shallow_folder,
        mesh={"data": 3, "tensor": 3},
        batch_size=8,
        max_sequence_length=512,
        max_tokens=512,
    )
    found = "\n".join(faults(made))
    for words in (
        "mesh: data 3 x tensor 3 is 9, but slice drill has 8 chips; make the product 8",
        "batch_size: 8 rows do not divide over mesh axis data 3; use 6 or 9",
        "max_tokens: 512 leave no room for a prompt in max_sequence_length 512; use less",
        "model: attention_heads 8 is not a multiple of mesh axis tensor 3; change mesh",
        "max_sequence_length: 512 is more than the model's own limit of 256; use at most that",
    ):
        assert words in found


def test_a_model_that_is_not_there_or_in_a_bucket_is_named(settings, tmp_path):
    assert "config.json" in "".join(faults(request(settings, tmp_path / "none")))
    [bucket] = faults(request(settings, "gs://bucket/model"))
    assert "gs://bucket/model: is not a folder; mount the bucket" in bucket


def test_other_weights_are_another_model_and_a_copy_of_its_files_alone_is_not(
    shallow_folder, tmp_path
):
    copy = tmp_path / "copy"
    shutil.copytree(shallow_folder, copy)
    assert fingerprint(str(copy)) == fingerprint(str(shallow_folder))
    (copy / "model.safetensors").touch()
    assert fingerprint(str(copy)) != fingerprint(str(shallow_folder))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temprature": 1}, "--settings: temprature: Extra inputs are not permitted"),
        ({"prompts": ["/none/*.jsonl"]}, "/none/*.jsonl: matches no file; check the pattern"),
        ({"prompts": [__file__]}, "test_request.py: unknown kind of file; use one of .jsonl, .pa"),
    ],
)
def test_the_job_ends_with_a_line_for_each_fault_and_code_1(
    shallow_folder, tmp_path, capsys, changes, words
):
    settings = {"prompts": ["x.jsonl"], "max_sequence_length": 48, "max_tokens": 8} | changes
    arguments = ["--slice", CONTRACT.to_json(), "--settings", json.dumps(settings)]
    assert main([*arguments, "--model", str(shallow_folder), "--output", str(tmp_path)]) == 1
    assert words in capsys.readouterr().out
