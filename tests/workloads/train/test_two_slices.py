"""Runs where there are two slices of two hosts, and one is lost: real raylets."""

import contextlib
import json
from dataclasses import replace

import psutil
import pytest

from tests.workloads.simulated import CONTRACT, TINY_MODEL, Job, Slice

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
TWO = replace(CONTRACT, slices=2)
STALE = {"MEGASCALE_NUM_SLICES": "3", "MEGASCALE_SLICE_ID": "2"}
"""Of an earlier cluster, in a pod of a slice that one program shares with another slice."""
SETTINGS = {
    "model": TINY_MODEL,
    "mesh": {"data": 2, "fsdp": 4, "tensor": 2},
    "steps": 240,
    "global_batch": 16,
    "warmup_steps": 2,
    "dtype": "float32",
    "checkpoint_every": 20,
    "evaluate_every": 1000,
    "log_every": 10,
    "max_failures": 1,
}


@pytest.fixture(scope="module")
def slices(tmp_path_factory):
    slices = Slice(str(tmp_path_factory.getbasetemp().parent / "raye"), TWO.slices)
    yield slices
    slices.cluster.shutdown()


@pytest.fixture
def stale_host(slices):
    """The first host of the second slice."""
    renewed(slices, 2, STALE)
    yield
    renewed(slices, 2, {})


def renewed(slices, index, environment):
    slices.lose_host(index)
    slices.environment = environment
    slices.bring_back_host(index)
    slices.environment = {}


def train(slices, corpus, output, *more, **changes):
    return Job(
        slices.cluster.address,
        "workloads.train.main",
        *("--settings", json.dumps(SETTINGS | changes)),
        *("--corpus", str(corpus)),
        *("--output", str(output)),
        *more,
    )


def steps(lines):
    return [int(line.split()[1].split("/")[0]) for line in lines if line.startswith("step ")]


def slice_in_use():
    """As the processes of this test's own cluster say."""
    names = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            if process.name().startswith("ray::RayTrainWo"):
                names.add(process.environ()["TPU_NAME"])
    (name,) = names
    return name


@pytest.mark.usefixtures("stale_host")
def test_a_lost_slice_is_trained_on_without_and_taken_again_when_it_is_back(
    slices, small_corpus, tmp_path
):
    """All of it over variables of other slices: Ray Train sets its own for several."""
    corpus = small_corpus(slices.cluster.address)
    job = train(slices, corpus, tmp_path, "--slice", TWO.to_json(), "--min-slices", "1")
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
    assert json.loads((tmp_path / "result.json").read_text())["steps"] == SETTINGS["steps"]


def test_a_run_that_loses_its_slice_goes_on_on_another_that_is_free(slices, small_corpus, tmp_path):
    """A host is enough. Its first host, by which Ray reserves a slice, may still be there."""
    corpus = small_corpus(slices.cluster.address)
    more = {"mesh": {"data": 4, "tensor": 2}, "steps": 160}
    job = train(slices, corpus, tmp_path, "--slice", CONTRACT.to_json(), **more)
    job.wait_for("step 40/160", 240)
    name = slice_in_use()
    lost = ["slice-0", "slice-1"].index(name) * CONTRACT.hosts + 1
    slices.lose_host(lost)
    job.wait_for("resuming after step", 240)
    assert slice_in_use() != name
    assert job.finish(240) == 0, job.lines
    assert steps(job.lines)[-1] == 160
    slices.bring_back_host(lost)
