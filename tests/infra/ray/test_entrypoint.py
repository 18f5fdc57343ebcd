"""A job's arguments reach its process as they were meant, through two shells and Ray's own CLI."""

import json
import shlex
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.ray.entrypoint import entrypoint, shell_json
from tests.infra.ray.stacks import job, shipped
from workloads.contract import SliceContract
from workloads.settings import DataSettings, TrainSettings

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def received(command: str) -> list[str]:
    """The words of the job's process, by the very steps that a command goes through.

    The operator's shell reads the entrypoint and calls `ray job submit`, which joins the words by
    list2cmdline (ray 2.60, dashboard/modules/job/cli.py) and hands them to a shell on the head.
    """
    first = _shell(command)
    return _shell(subprocess.list2cmdline(first))


def _shell(command: str) -> list[str]:
    script = f"for word in {command}; do printf '%s\\0' \"$word\"; done"
    done = subprocess.run(["/bin/bash", "-c", script], check=True, capture_output=True)
    return done.stdout.decode().split("\0")[:-1]


def arguments(words: list[str]) -> dict[str, str]:
    assert words[:2] == ["python", "-m"]
    return dict(zip(words[3::2], words[4::2], strict=True))


def test_a_training_job_is_told_slice_settings_corpus_and_output():
    config = shipped("prod")
    words = received(entrypoint(config, job(config, "pretrain")))
    assert words[2] == "workloads.train.main"
    told = arguments(words)
    assert [*told] == ["--settings", "--output", "--slice", "--corpus"]
    assert SliceContract.from_json(told["--slice"]) == config.slice("train").contract()
    settings = TrainSettings.model_validate_json(told["--settings"])
    assert settings == job(config, "pretrain").settings()
    assert told["--corpus"] == "gs://acme-ml-prod-raytpu-prod-data/corpus"
    assert told["--output"].startswith("gs://acme-ml-prod-raytpu-prod-checkpoints/pretrain/")


def test_a_run_is_told_what_it_may_take_instead_and_when():
    config = shipped("second-choice")
    words = received(entrypoint(config, job(config, "pretrain")))
    (other,) = config.slice("train").fallback
    told = arguments(words)
    assert SliceContract.from_json(told["--fallback"]) == other.contract()
    assert told["--slice-timeout-s"] == "1800"


def test_an_elastic_run_is_told_how_few_slices_it_may_have():
    config = shipped("prod")
    run = job(config, "pretrain").model_copy(update={"min_slices": 1})
    assert arguments(received(entrypoint(config, run)))["--min-slices"] == "1"


def test_a_data_job_is_told_settings_and_output():
    config = shipped("prod")
    words = received(entrypoint(config, job(config, "corpus")))
    assert words[2] == "workloads.data.main"
    told = arguments(words)
    settings = DataSettings.model_validate_json(told["--settings"])
    assert settings.sources == ("gs://acme-ml-prod-corpora/english/*.parquet",)
    assert told == {
        "--settings": told["--settings"],
        "--output": "gs://acme-ml-prod-raytpu-prod-data/corpus",
    }


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(TEXT, TEXT | st.integers() | st.lists(TEXT, max_size=3), min_size=1, max_size=3)
)
def test_any_json_survives_the_way(value):
    (word,) = received(shlex.quote(shell_json(value)))
    assert json.loads(word) == value


def test_plain_json_does_not_survive_it():
    """What shell_json is for: Windows' quoting leaves JSON without spaces to the shell."""
    plain = json.dumps({"a": "$HOME `id`", "b": 1}, separators=(",", ":"))
    assert received(shlex.quote(plain)) != [plain]
