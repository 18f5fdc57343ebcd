"""One's own programs, and the slice check, on two simulated slices of two hosts: real raylets."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import ray
from ray._private.accelerators.tpu import reserve_tpu_slice

from tests.workloads.simulated import CONTRACT, Job, Slice
from tests.workloads.spmd import programs
from workloads.check.report import Report
from workloads.slices import only_whole

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
PROGRAMS = "tests.workloads.spmd.programs"
TWO = replace(CONTRACT, slices=2)
SMALL = {"sizes_mib": [1], "repeats": 3}
OPERATIONS = ("all_reduce", "all_gather")
LIMIT_S = 180


@pytest.fixture(scope="module")
def tpu(tmp_path_factory):
    # Ray's sockets lie in its folder, and a socket's path is at most 107 bytes long.
    tpu = Slice(str(tmp_path_factory.getbasetemp().parent / "rayp"), TWO.slices)
    yield tpu
    tpu.cluster.shutdown()


def spmd(tpu, output, program, *args, before=(), more=(), contract=CONTRACT, **settings):
    modules = [*before, "workloads.spmd.main"]
    return Job(
        tpu.cluster.address,
        *modules,
        *("--slice", contract.to_json()),
        *("--settings", json.dumps({"program": program, "args": args, **settings})),
        *("--output", str(output)),
        *more,
    )


def check(tpu, output, *more, contract=TWO, **settings):
    return Job(
        tpu.cluster.address,
        "workloads.check.main",
        *("--slice", contract.to_json()),
        *("--settings", json.dumps(SMALL | settings)),
        *("--output", str(output)),
        *more,
    )


def result(output, name="result.json"):
    return json.loads((output / name).read_text())


class Host:
    """One host of the slices, changed for a while by what stands in its environment."""

    def __init__(self, tpu, index, **environment):
        self._tpu, self._index, self._environment = tpu, index, environment

    def __enter__(self):
        self._again(self._environment)

    def __exit__(self, *_):
        self._again({})

    def _again(self, environment):
        self._tpu.lose_host(self._index)
        self._tpu.environment = environment
        self._tpu.bring_back_host(self._index)
        self._tpu.environment = {}


def test_a_sound_slice_passes_and_what_was_measured_is_kept(tpu, tmp_path):
    job = check(tpu, tmp_path)
    assert job.finish(LIMIT_S) == 0, job.lines
    report = Report.model_validate(result(tmp_path))
    assert [(h.slice_index, h.worker_id, h.process) for h in report.hosts] == [
        *((0, 0, 0), (0, 1, 1)),
        *((1, 0, 2), (1, 1, 3)),
    ]
    assert [len(one.devices) for one in report.hosts] == [4, 4, 4, 4]
    assert all(len(one.products_s) == 4 for one in report.hosts)
    measured = [(c.over, c.timing.operation, c.timing.devices) for c in report.collectives]
    alone = [("slice-0", 8), ("slice-1", 8)]
    assert measured == [
        *((name, operation, count) for operation in OPERATIONS for name, count in alone),
        *(("all 2 slices", operation, 16) for operation in OPERATIONS),
    ]
    text = "\n".join(job.lines)
    assert "coordinates and HBM: not reported by cpu devices" in text
    assert "slice drill: sound" in text


def test_ray_is_kept_off_a_slice_that_has_lost_a_host(tpu):
    """It would reserve that slice by its first host, and wait for the second one."""

    def reserved(timeout_s):
        found = reserve_tpu_slice(CONTRACT.topology, CONTRACT.accelerator_type, timeout_s)
        return found and found[0]

    tpu.lose_host(3)
    ray.init(tpu.cluster.address)
    try:
        with only_whole(CONTRACT):
            assert reserved(30) == "slice-0"
            with pytest.raises(TimeoutError):
                reserved(2)
        assert reserved(30) == "slice-1"
    finally:
        ray.shutdown()
        tpu.bring_back_host(3)


def test_a_host_that_shows_fewer_devices_is_named_alone(tpu, tmp_path):
    flags = "--xla_force_host_platform_device_count=3"
    with Host(tpu, 3, XLA_FLAGS=flags):
        job = check(tpu, tmp_path)
        assert job.finish(LIMIT_S) == 1
    (line,) = [line for line in job.lines if line.startswith("error: ")]
    assert line.startswith("error: host 1 of slice-1 (")
    assert "has 3 chips, not 4 chips; replace that host" in line
    assert len(result(tmp_path)["faults"]) == 1


def test_a_number_given_twice_is_found_before_jax_would_hang_on_it(tpu, tmp_path):
    with Host(tpu, 1, TPU_WORKER_ID="0"):
        job = check(tpu, tmp_path)
        assert job.finish(LIMIT_S) == 1
    twice, missing = [line for line in job.lines if line.startswith("error: ")]
    assert twice.startswith("error: slice slice-0: TPU_WORKER_ID 0: is that of host 0 of slice-0")
    assert "TPU_WORKER_ID 1: is that of no host of 0 to 1" in missing
    assert not any("starting JAX" in line for line in job.lines)


def test_a_host_that_stops_half_way_is_named_within_the_limit(tpu, tmp_path):
    job = check(tpu, tmp_path, contract=CONTRACT, limit_s=30, sizes_mib=[1] * 50, repeats=100)
    job.wait_for("2 hosts are there", LIMIT_S)
    stuck = processes("ray::CheckHost")[-1]
    number = stuck.environ()["TPU_WORKER_ID"]
    stuck.suspend()
    assert job.finish(LIMIT_S) == 1
    (line,) = [line for line in job.lines if line.startswith("error: ")]
    assert line.startswith(f"error: host {number} of slice-")
    assert "did not answer within" in line
    assert not processes("ray::CheckHost")


def test_a_host_that_is_not_there_is_named(tpu, tmp_path):
    tpu.lose_host(2)
    try:
        job = check(tpu, tmp_path, "--slice-timeout-s", "3")
        assert job.finish(LIMIT_S) == 1
    finally:
        tpu.bring_back_host(2)
    *_, waited, absent = job.lines
    assert "1 of 2 slice(s) TPU-V5P 2x2x2 whole and idle after 3 s" in waited
    assert absent == (
        "error: slice slice-1: 1 of 2 hosts are in the cluster, and host 0 is not; see its pod"
    )


def test_a_function_runs_on_every_host_of_all_slices_after_the_check_that_was_asked_for(
    tpu, tmp_path
):
    before = ["workloads.check.before"]
    job = spmd(tpu, tmp_path, f"{PROGRAMS}:total", "5", before=before, contract=TWO)
    assert job.finish(LIMIT_S) == 0, job.lines
    assert "16 devices on 4 hosts" in job.lines
    assert result(tmp_path)["returned"] == {"total": 26, "hosts": 2, "attempt": 1}
    assert result(tmp_path, "slice-check.json")["faults"] == []


def test_a_script_is_brought_to_the_hosts_and_runs_as_it_is(tpu, tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    shutil.copy(programs.__file__, folder / "own.py")
    words, more = ["--steps", "7"], ["--code", str(folder)]
    job = spmd(tpu, tmp_path, "own.py", *words, more=more, env={"MY_FLAG": "on"}, max_failures=0)
    assert job.finish(LIMIT_S) == 0, job.lines
    assert '{"devices": 8, "steps": 7, "flag": "on"}' in job.lines
    assert result(tmp_path)["returned"] is None


def test_one_host_that_fails_ends_all_and_its_error_is_told(tpu, tmp_path):
    program = f"{PROGRAMS}:fails_on_one_host"
    job = spmd(tpu, tmp_path, program, "1", max_failures=0)
    assert job.finish(LIMIT_S) == 1
    (line,) = [line for line in job.lines if line.startswith("error: ")]
    assert line.startswith("error: host 1 of slice-")
    assert line.endswith("ValueError: no batch left on process 1")
    assert not processes("workloads.spmd.child")


def test_a_failure_is_tried_again_and_goes_on_from_what_was_kept(tpu, tmp_path):
    job = spmd(tpu, tmp_path, f"{PROGRAMS}:fails_at_first", max_failures=1)
    assert job.finish(LIMIT_S) == 0, job.lines
    assert any("attempt 1 of 2 failed: host" in line for line in job.lines)
    assert result(tmp_path) | {"wall_s": 0} == {"returned": "step 7", "attempts": 2, "wall_s": 0}


def test_a_lost_host_takes_the_program_with_it_on_all_hosts(tpu, tmp_path):
    job = spmd(tpu, tmp_path, f"{PROGRAMS}:waits", contract=TWO, max_failures=0)
    job.wait_for("waiting", LIMIT_S)
    lost = time.monotonic()
    tpu.lose_host(1)
    try:
        assert job.finish(LIMIT_S) == 1
        assert time.monotonic() - lost < LIMIT_S
    finally:
        tpu.bring_back_host(1)
    (line,) = [line for line in job.lines if line.startswith("error: ")]
    assert line.startswith("error: host 1 of slice-0 (")
    assert "its process was lost, or the whole host" in line
    assert not processes("workloads.spmd.child")


def test_slices_that_a_program_has_are_waited_for(tpu, tmp_path):
    (tmp_path / "busy").mkdir()
    busy = spmd(tpu, tmp_path / "busy", f"{PROGRAMS}:waits", contract=TWO)
    busy.wait_for("waiting", LIMIT_S)
    job = check(tpu, tmp_path / "late", "--slice-timeout-s", "3")
    assert job.finish(LIMIT_S) == 1
    assert any("0 of 2 slice(s) TPU-V5P 2x2x2 whole and idle after 3 s" in one for one in job.lines)
    busy.process.kill()
    busy.finish(30)


def test_a_killed_driver_leaves_no_process_on_any_host(tpu, tmp_path):
    job = spmd(tpu, tmp_path, f"{PROGRAMS}:waits", contract=TWO)
    job.wait_for("waiting", LIMIT_S)
    assert len([*Path(tmp_path).glob("pid-*")]) >= 1
    job.process.kill()
    job.finish(30)
    deadline = time.monotonic() + 60
    while processes("workloads.spmd.child"):
        assert time.monotonic() < deadline, "the program still runs"
        time.sleep(0.5)


def processes(word):
    """Of this test's own cluster: children of its process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if word in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
