"""What the application refuses before it takes a chip."""

import json
import shutil

import pytest

from infra.ray.pods import GRACE_S
from tests.workloads.simulated import ONE_HOST
from workloads.serve.app import DRAIN_TIMEOUT_S, build

SLICE = vars(ONE_HOST) | {"slices": 2}


def arguments(folder, *, slice_=SLICE, **changes):
    settings = {"mesh": {"data": 2, "tensor": 2}, "max_sequence_length": 64, "max_batch": 4}
    return {
        "slice": slice_,
        "settings": settings | changes.pop("settings", {}),
        "model": str(folder),
        "model_name": "chat",
    } | changes


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "model")


def test_a_declaration_that_fits_is_built(folder):
    app = build(arguments(folder, replicas=2))
    assert type(app).__name__ == "Application"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"slice_": SLICE | {"hosts": 4, "topology": "4x4"}},
            ["mesh data 2 x tensor 2 is 4, but slice chat has 16 chips"],
        ),
        (
            {"settings": {"mesh": {"data": 2, "tensor": 4}}},
            ["mesh data 2 x tensor 4 is 8, but slice chat has 4 chips"],
        ),
        (
            {"slice_": SLICE | {"devices_per_chip": 2}},
            ["mesh data 2 x tensor 2 is 4, but slice chat has 8 devices (4 chips of 2)"],
        ),
        ({"replicas": 3}, ["3 replicas need a slice each, but chat declares 2"]),
        (
            {"settings": {"max_batch": 3}, "replicas": 3},
            ["max_batch 3 is not a multiple of mesh axis data 2", "3 replicas need"],
        ),
        ({"slice_": {"name": "chat"}}, ["serve: slice: slice contract: missing 'slices'"]),
        ({"settings": {"batch": 3}}, ["serve: settings.batch: Extra inputs are not permitted"]),
        ({"model_name": "", "chips": 4}, ["serve: model_name: ", "serve: chips: "]),
        ({"model": "gs://bucket/model"}, ["serve: model: gs://bucket/model is not a folder"]),
        ({"model": "/none"}, ["/none/config.json: no such file"]),
    ],
)
def test_arguments_that_cannot_be_served_are_refused_together_in_one_line(folder, changes, told):
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as caught:
        build(arguments(folder, **changes))
    assert all(part in str(caught.value) for part in told)
    assert "pydantic" not in str(caught.value)


def test_a_part_of_a_slice_is_built_for(folder):
    part = SLICE | {"topology": "2x2", "slices": 4}
    app = build(arguments(folder, slice_=part, parent_topology="4x4", replicas=4))
    assert type(app).__name__ == "Application"


def test_all_contradictions_of_model_and_settings_are_told_at_once(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"vocab_size": 300, "eos_token_id": None, "pad_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink()
    with pytest.raises(ValueError, match="max_sequence_length") as caught:
        build(arguments(folder, settings={"max_sequence_length": 300}))
    told = str(caught.value).split("; ")
    assert [line.removeprefix(f"{folder}: ") for line in told] == [
        "max_sequence_length 300 is more than the model's own limit of 256",
        "its tokenizer has 320 tokens, but the model only 300",
        "it names no eos_token_id, so no completion would end by itself",
    ]


def test_a_key_file_that_holds_no_key_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="none: cannot be read: No such file"):
        build(arguments(folder, api_key_file=str(tmp_path / "none")))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ValueError, match="empty: is empty; write the key into it"):
        build(arguments(folder, api_key_file=str(tmp_path / "empty")))


def test_a_pod_is_given_longer_than_the_requests_under_way_have_to_end():
    assert DRAIN_TIMEOUT_S < GRACE_S
