"""A training run is known by what it learns, not by how it is carried out."""

import pytest

from infra.config import TrainSpec
from infra.config.runs import run_id
from tests.infra.config.stack import on_gke, read


def run(**changes):
    config = read(on_gke(**changes))
    [trainer] = [one for one in config.workloads if isinstance(one, TrainSpec)]
    return run_id(config, trainer)


@pytest.mark.parametrize(
    "changes",
    [
        {"workloads__1__deadline": "2d"},
        {"workloads__1__max_failures": 9},
        {"workloads__0__deadline": "2d"},
        {"workloads__0__workers": 3},
        {"workloads__0__retries": 2},
    ],
)
def test_how_a_job_is_carried_out_begins_no_other_run(changes):
    assert run(**changes) == run()


@pytest.mark.parametrize(
    "changes",
    [
        {"workloads__1__steps": 999},
        {"workloads__1__learning_rate": 0.5},
        {"workloads__0__vocab_size": 4096},
        {"workloads__1__data": {"path": "gs://bucket/corpus"}},
    ],
)
def test_what_is_learned_otherwise_is_another_run(changes):
    assert run(**changes) != run()
