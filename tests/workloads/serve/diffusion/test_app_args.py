"""What the application refuses before it takes a chip."""

import json
import shutil

import pytest

from tests.workloads.serve.test_app_args import SLICE
from workloads.serve.diffusion.app import build


def arguments(folder, *, slice_=SLICE, **changes):
    settings = {"engine": "diffusion", "max_batch": 4, **changes.pop("settings", {})}
    return {
        "slice": slice_,
        "settings": settings,
        "model": str(folder),
        "model_name": "paint",
        **changes,
    }


def test_a_declaration_that_fits_is_built(noise_folder, tmp_path):
    (tmp_path / "key").write_text("sk-1")
    key = str(tmp_path / "key")
    app = build(arguments(noise_folder, replicas=2, api_key_file=key))
    assert type(app).__name__ == "Application"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"slice_": SLICE | {"hosts": 4, "topology": "4x4"}, "settings": {"max_batch": 16}},
            ["slice chat is 4x4 on 4 hosts, or a part of a slice, and engine diffusion draws on"],
        ),
        ({"parent_topology": "4x4"}, ["draws on whole slices of one host"]),
        (
            {"settings": {"mesh": {"data": 2, "tensor": 2}}, "replicas": 3},
            ["mesh axis tensor is 2", "3 replicas need a slice each, but chat declares 2"],
        ),
        ({"settings": {"max_batch": 6}}, ["max_batch 6 is not a multiple of mesh axis data 4"]),
        ({"settings": {"sampler": {"steps": 0}}}, ["serve: settings.sampler.steps: "]),
        ({"settings": {"sampler": {"stps": 9}}}, ["serve: settings.sampler.stps: Extra"]),
        (
            {"settings": {"sampler": {"steps": 1001}}},
            ["sampler.steps 1001 is more than its 1000 steps of noise"],
        ),
        ({"model": "gs://bucket/model"}, ["gs://bucket/model is not a folder"]),
        ({"model": "/none"}, ["/none/config.json: no such file"]),
        ({"api_key_file": "/none"}, ["api_key_file /none: cannot be read"]),
    ],
)
def test_arguments_that_cannot_be_served_are_refused_together_in_one_line(
    noise_folder, changes, told
):
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as caught:
        build(arguments(noise_folder, **changes))
    assert all(part in str(caught.value) for part in told)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(noise_folder, tmp_path):
    folder = shutil.copytree(noise_folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 100}))
    with pytest.raises(ValueError, match="has 256 tokens, but the model only 100"):
        build(arguments(folder))


def test_a_folder_of_a_text_model_is_refused(tiny_folder):
    with pytest.raises(ValueError, match="model_type is 'qwen3'; only 'raytpu-diffusion'"):
        build(arguments(tiny_folder))
