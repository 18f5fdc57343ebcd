import json
import time

import pytest

from workloads.errors import UserError
from workloads.settings import ModelSettings, TrainMesh, TrainSettings
from workloads.train import run
from workloads.train.run import Result

SETTINGS = TrainSettings(mesh=TrainMesh(data=4), steps=100, global_batch=8)
RESULT = Result(
    steps=100,
    parameters=9,
    held_out_loss=1.5,
    unigram_entropy=2.5,
    tokens_per_s=None,
    wall_s={"train": 2.0},
)


def test_a_new_run_takes_an_empty_output_and_goes_on_with_its_own(tmp_path):
    assert run.claim(str(tmp_path), SETTINGS, "c") is None
    assert run.claim(str(tmp_path), SETTINGS, "c") is None


def test_a_finished_run_is_found_with_its_result(tmp_path):
    run.claim(str(tmp_path), SETTINGS, "c")
    run.finish(str(tmp_path), RESULT)
    assert run.claim(str(tmp_path), SETTINGS, "c") == RESULT


def test_a_run_began_when_it_was_first_started(tmp_path):
    before = time.time()
    run.claim(str(tmp_path), SETTINGS, "c")
    after = time.time()
    began = run.began_unix_s(str(tmp_path))
    assert before <= began <= after
    run.claim(str(tmp_path), SETTINGS, "c")
    assert run.began_unix_s(str(tmp_path)) == began


def test_a_run_that_does_not_know_when_it_began_is_refused(tmp_path):
    run.claim(str(tmp_path), SETTINGS, "c")
    record = json.loads((tmp_path / "run.json").read_text())
    del record["began_unix_s"]
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"run\.json: not a run of this version; choose another"):
        run.claim(str(tmp_path), SETTINGS, "c")


def test_how_a_run_is_carried_out_may_change(tmp_path):
    run.claim(str(tmp_path), SETTINGS, "c")
    changed = SETTINGS.model_copy(
        update={"mesh": TrainMesh(data=2, tensor=2), "log_every": 1, "checkpoint_every": 7}
    )
    assert run.claim(str(tmp_path), changed, "c") is None


def test_another_run_in_the_same_output_is_refused_by_every_field_that_differs(tmp_path):
    run.claim(str(tmp_path), SETTINGS, "c")
    other = SETTINGS.model_copy(update={"steps": 50, "model": ModelSettings(layers=9)})
    with pytest.raises(UserError) as refusal:
        run.claim(str(tmp_path), other, "d")
    corpus, layers, steps = refusal.value.faults
    assert corpus.startswith("corpus is 'd', but the run in")
    assert layers.startswith("model.layers is 9,")
    assert "has 4; set it back, or choose another output" in layers
    assert steps.startswith("steps is 50,")
    assert json.loads((tmp_path / "run.json").read_text())["steps"] == 100


def test_a_damaged_record_is_refused_and_left_alone(tmp_path):
    (tmp_path / "run.json").write_text("[")
    with pytest.raises(UserError, match=r"run\.json: not a JSON object; choose another output"):
        run.claim(str(tmp_path), SETTINGS, "c")
    assert (tmp_path / "run.json").read_text() == "["
