"""A run over two slices that goes on with one while the other is lost: real raylets."""

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
    "steps": 160,
    "global_batch": 16,
    "warmup_steps": 2,
    "dtype": "float32",
    "checkpoint_every": 20,
    "evaluate_every": 1000,
    "log_every": 10,
    "max_failures": 1,
}


@pytest.fixture
def slices(tmp_path_factory):
    slices = Slice(str(tmp_path_factory.getbasetemp().parent / "raye"), TWO.slices)
    yield slices
    slices.cluster.shutdown()


def steps(lines):
    return [int(line.split()[1].split("/")[0]) for line in lines if line.startswith("step ")]


def test_a_lost_slice_is_trained_on_without_and_taken_again_when_it_is_back(
    slices, small_corpus, tmp_path
):
    address, output = slices.cluster.address, tmp_path / "run"
    job = Job(
        address,
        "workloads.train.main",
        *("--slice", TWO.to_json(), "--min-slices", "1"),
        *("--settings", json.dumps(SETTINGS)),
        *("--corpus", str(small_corpus(address))),
        *("--output", str(output)),
    )
    job.wait_for("mesh data 2 x fsdp 4 x tensor 2: 16 cpu devices on 4 hosts of 2 slices", 240)
    job.wait_for(f"step 30/{SETTINGS['steps']}", 240)
    slices.lose_host(3)
    job.wait_for("taking 1 of 2 slices instead, mesh data 1 x fsdp 4 x tensor 2", 240)
    job.wait_for("mesh data 1 x fsdp 4 x tensor 2: 8 cpu devices on 2 hosts", 240)
    slices.bring_back_host(3)
    job.wait_for("a slice has come: step", 240)
    assert job.finish(400) == 0, job.lines
    grown = next(i for i, line in enumerate(job.lines) if line.startswith("a slice has come"))
    saved = int(job.lines[grown].split()[5])
    assert saved % SETTINGS["checkpoint_every"] == 0
    before, after = job.lines[:grown], job.lines[grown:]
    (resumed,) = [line for line in after if "resuming after step" in line]
    assert "4 hosts of 2 slices" in resumed
    assert resumed.endswith(f"after step {saved}")
    assert steps(after)[0] == saved + 1  # nothing is lost on the way to more slices
    lost = next(i for i, line in enumerate(before) if "2 of 2 slices failed" in line)
    assert 20 <= steps(before[lost:])[0] - 1 <= steps(before[:lost])[-1]
    assert json.loads((output / "result.json").read_text())["steps"] == SETTINGS["steps"]
