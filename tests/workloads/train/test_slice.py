"""The training job on a simulated v5p slice of two hosts: real raylets, a real JaxTrainer."""

import json
import re
import time
import urllib.request
from dataclasses import replace

import pytest
from ray._raylet import GcsClient  # pyright: ignore[reportAttributeAccessIssue] # not Python
from safetensors import deserialize, safe_open

from tests.workloads.simulated import CONTRACT, TINY_MODEL, Job, Slice

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
SETTINGS = {
    "model": TINY_MODEL,
    "mesh": {"data": 4, "tensor": 2},
    "steps": 60,
    "global_batch": 16,
    "warmup_steps": 5,
    "learning_rate": 0.02,
    "dtype": "float32",
    "checkpoint_every": 10,
    "evaluate_every": 1000,
    "log_every": 2,
}


@pytest.fixture(scope="module")
def tpu(tmp_path_factory):
    # Ray's sockets lie in its folder, and a socket's path is at most 107 bytes long.
    tpu = Slice(str(tmp_path_factory.getbasetemp().parent / "rayt"))
    yield tpu
    tpu.cluster.shutdown()


@pytest.fixture(scope="module")
def corpus(tpu, small_corpus):
    return small_corpus(tpu.cluster.address)


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


def train(tpu, corpus, output, *more, contract=CONTRACT, **changes):
    return Job(
        tpu.cluster.address,
        "workloads.train.main",
        *("--slice", contract.to_json()),
        *("--settings", json.dumps(SETTINGS | changes)),
        *("--corpus", str(corpus)),
        *("--output", str(output)),
        *more,
    )


def scraped(tpu, output, timeout_s):
    """This run's gauges, as Prometheus sees them on the head: Ray sends them every 10 s."""
    gcs = GcsClient(address=tpu.cluster.address)
    nodes = {node_id.hex(): node for node_id, node in gcs.get_all_node_info().items()}
    head = nodes[tpu.cluster.head_node.node_id]
    url = f"http://{head.node_manager_address}:{head.metrics_export_port}/metrics"
    tags = f'run="{output.name}",.*workload="{output.parent.name}"'
    line = re.compile(rf"ray_raytpu_train_(\w+){{.*{tags}.*}} (\S+)")
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with urllib.request.urlopen(url, timeout=10) as page:
            found = line.findall(page.read().decode())
        if found:
            return {name: float(value) for name, value in found}
        time.sleep(1)
    pytest.fail(f"no gauge of {output.name} at {url} within {timeout_s} s")


def test_a_run_that_loses_a_host_goes_on_from_its_last_checkpoint(tpu, corpus, output):
    job = train(tpu, corpus, output)
    job.wait_for("mesh data 4 x tensor 2: 8 cpu devices on 2 hosts", 240)
    job.wait_for("step 24/60", 240)
    tpu.lose_host(1)
    tpu.bring_back_host(1)
    gauges = scraped(tpu, output, 60)
    assert 24 <= gauges["step"] <= 60
    assert 0 < gauges["goodput_ratio"] < 1
    assert gauges["tokens_per_second"] * gauges["step_seconds"] == pytest.approx(16 * 32)
    assert "model_flops_utilization_ratio" not in gauges  # of CPUs there is none
    assert job.finish(400) == 0, job.lines
    (resumed,) = [line for line in job.lines if "resuming after step" in line]
    step = int(resumed.rsplit(" ", 1)[1])
    # Step 24 was told, so the checkpoint of step 20 had been asked for; it is saved meanwhile.
    assert step in range(10, 60, 10)
    result = json.loads((output / "result.json").read_text())
    assert result["steps"] == 60
    assert 0 < result["goodput"] < 1
    assert result["utilisation"] is None
    assert result["held_out_loss"] < result["unigram_entropy"]
    told = f"held-out loss {result['held_out_loss']:.3f} nats a token, against a unigram entropy"
    assert any(line.startswith(told) for line in job.lines)
    with safe_open(output / "export" / "model.safetensors", framework="np") as weights:
        assert weights.get_slice("model.embed_tokens.weight").get_shape() == [512, 32]


def test_a_finished_run_is_not_trained_again(tpu, corpus, output):
    before = (output / "result.json").read_bytes()
    started = time.monotonic()
    job = train(tpu, corpus, output)
    assert job.finish(60) == 0, job.lines
    assert "this run is finished" in job.lines[0]
    assert (output / "result.json").read_bytes() == before
    assert time.monotonic() - started < 60


def test_a_fine_tuning_whose_driver_is_killed_frees_the_slice_and_is_taken_up(
    tpu, corpus, output, tmp_path
):
    """Adapters, trained beside what the first run has exported."""
    base = output / "export"
    tuning = {"model": {}, "lora": {"rank": 2, "alpha": 4.0}, "steps": 100}
    job = train(tpu, corpus, tmp_path, "--base", str(base), **tuning)
    job.wait_for("step 24/100", 240)
    job.process.kill()
    job.finish(60)
    job = train(tpu, corpus, tmp_path, "--base", str(base), **tuning)
    assert job.finish(400) == 0, job.lines
    (resumed,) = [line for line in job.lines if "resuming after step" in line]
    # Of step 24 was told, so step 10 was saved for sure; 20 was being saved.
    assert int(resumed.rsplit(" ", 1)[1]) in range(10, 100, 10)
    assert json.loads((tmp_path / "result.json").read_text())["steps"] == 100
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    assert embeddings(tmp_path / "export") == embeddings(base)  # LoRA leaves them as they are


def embeddings(folder):
    tensors = dict(deserialize((folder / "model.safetensors").read_bytes()))
    return bytes(tensors["model.embed_tokens.weight"]["data"])


def test_a_run_saves_at_a_stop_notice_and_goes_on_from_there(tpu, corpus, tmp_path):
    """As a pod's hook gives it. No interval of checkpoints ends before the run does."""
    # A step a line takes 250 ms, as often as the driver looks for what is told.
    slow = {"steps": 160, "log_every": 1, "max_failures": 0, "checkpoint_every": 1000}
    job = train(tpu, corpus, tmp_path, contract=CONTRACT, **slow)
    job.wait_for("step 10/160", 240)
    node = ["--node-id", tpu.nodes[1].node_id]
    hook = Job(tpu.cluster.address, "workloads.drain", "--limit-s", "100", *node)
    assert hook.finish(120) == 0, hook.lines  # and the node has gone by itself
    job.wait_for("stop notice: step", 10)
    tpu.lose_host(1)
    tpu.bring_back_host(1)
    assert job.finish(400) == 0, job.lines
    saved, resumed = (
        next(line for line in job.lines if line.startswith("stop notice: step")).split()[3],
        next(line for line in job.lines if "resuming" in line).rsplit(" ", 1)[1],
    )
    assert resumed == saved
    assert int(saved) >= 10
    steps = [int(line.split()[1].split("/")[0]) for line in job.lines if line.startswith("step ")]
    assert steps == sorted(set(steps))  # none is trained twice


def test_a_run_whose_storage_takes_no_writes_for_a_while_waits_and_goes_on(tpu, corpus, tmp_path):
    job = train(tpu, corpus, tmp_path, steps=200, max_failures=1)
    job.wait_for("step 24/200", 240)
    checkpoints, aside = tmp_path / "checkpoints", tmp_path / "aside"
    checkpoints.rename(aside)
    checkpoints.write_text("a file, in which even root can make no folder")
    job.wait_for(f"waiting for {checkpoints} to take writes (limit 600 s): ", 120)
    checkpoints.unlink()
    aside.rename(checkpoints)
    assert job.finish(400) == 0, job.lines
    (resumed,) = [line for line in job.lines if "resuming after step" in line]
    assert int(resumed.rsplit(" ", 1)[1]) in (10, 20)
    assert json.loads((tmp_path / "result.json").read_text())["steps"] == 200


def test_a_run_whose_slice_does_not_come_takes_the_next_after_the_time_it_was_given(
    tpu, corpus, tmp_path
):
    """Half the chips: half the copies of the model, and the batch in two parts."""
    absent = replace(CONTRACT, name="first", topology="2x2x4", hosts=4, pod_type="v5p-32")
    changes = {"mesh": {"data": 8, "tensor": 2}, "steps": 4, "warmup_steps": 2}
    instead = ["--fallback", CONTRACT.to_json(), "--slice-timeout-s", "5"]
    job = train(tpu, corpus, tmp_path, *instead, contract=absent, **changes)
    job.wait_for("waiting for 1 slice(s) TPU-V5P 2x2x4: 0 ready (limit 5 s)", 120)
    asked = time.monotonic()
    job.wait_for("taking slice drill instead, mesh data 4 x tensor 2", 30)
    assert 4 < time.monotonic() - asked < 15
    job.wait_for("mesh data 4 x tensor 2: 8 cpu devices on 2 hosts", 240)
    assert job.finish(200) == 0, job.lines
    changes["mesh"] = {"data": 4, "tensor": 2}
    again = train(tpu, corpus, tmp_path, **changes)
    assert again.finish(60) == 0, again.lines
    assert "this run is finished" in again.lines[0]  # it is the same one on either slice


def test_another_run_is_refused_the_output(tpu, corpus, output):
    job = train(tpu, corpus, output, learning_rate=0.5)
    assert job.finish(60) == 1
    (line,) = job.lines
    assert line.startswith("error: learning_rate is 0.5, but the run in")


def test_what_does_not_fit_is_refused_before_the_slice_is_taken(tpu, corpus, tmp_path):
    job = train(
        tpu, corpus, tmp_path, mesh={"data": 2, "tensor": 3}, global_batch=12, warmup_steps=60
    )
    assert job.finish(60) == 1
    text = "\n".join(job.lines)
    assert "mesh: data 2 x tensor 3 is 6, but slice drill has 8 chips" in text
    assert "global_batch: 12 rows do not divide over 8 chips; use 8 or 16" in text
    assert "warmup_steps: 60 leave nothing of 60 steps" in text
    assert "model: attention_heads 2 is not a multiple of mesh axis tensor 3" in text


def test_a_run_of_fewer_slices_than_one_or_more_than_all_is_refused(tpu, corpus, tmp_path):
    for least in ("0", "2"):
        job = train(tpu, corpus, tmp_path, "--min-slices", least)
        assert job.finish(60) == 1
        assert job.lines == [f"error: --min-slices: {least} of 1 slices; use 1 to 1"]


def test_a_slice_that_is_not_whole_is_waited_for_and_then_given_up(tpu, corpus, tmp_path):
    tpu.lose_host(1)
    try:
        job = train(tpu, corpus, tmp_path, "--slice-timeout-s", "3")
        assert job.finish(90) == 1
    finally:
        tpu.bring_back_host(1)
    *_, waiting, error = job.lines
    assert "waiting for 1 slice(s) TPU-V5P 2x2x2: 0 ready (limit 3 s)" in waiting
    assert "0 of 1 slice(s) TPU-V5P 2x2x2 whole and idle after 3 s" in error
