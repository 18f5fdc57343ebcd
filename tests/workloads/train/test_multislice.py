"""One training run over two simulated slices of two hosts: real raylets, a real JaxTrainer."""

import json
from dataclasses import replace

import pytest

from tests.workloads.simulated import CONTRACT, Job, Slice

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
TWO = replace(CONTRACT, slices=2)
SETTINGS = {
    "model": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "layers": 1,
        "attention_heads": 2,
        "key_value_heads": 2,
        "head_dim": 16,
    },
    "mesh": {"data": 2, "fsdp": 4, "tensor": 2},
    "steps": 6,
    "global_batch": 16,
    "warmup_steps": 2,
    "dtype": "float32",
    "log_every": 2,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Its pods carry numbers of an earlier cluster, of three slices."""
    stale = {"MEGASCALE_NUM_SLICES": "3", "MEGASCALE_SLICE_ID": "2"}
    folder = str(tmp_path_factory.getbasetemp().parent / "raym")
    slices = Slice(folder, TWO.slices, environment=stale)
    yield slices.cluster
    slices.cluster.shutdown()


def test_two_slices_train_one_model_over_stale_variables(cluster, small_corpus, tmp_path):
    output = tmp_path / "run"
    job = Job(
        cluster.address,
        "workloads.train.main",
        *("--slice", TWO.to_json()),
        *("--settings", json.dumps(SETTINGS)),
        *("--corpus", str(small_corpus(cluster.address))),
        *("--output", str(output)),
    )
    assert job.finish(500) == 0, job.lines
    start = "mesh data 2 x fsdp 4 x tensor 2: 16 cpu devices on 4 hosts of 2 slices"
    assert any(line.startswith(start) for line in job.lines), job.lines
    assert json.loads((output / "result.json").read_text())["steps"] == SETTINGS["steps"]
