"""What goes wrong from outside: told in one line each, and nothing left behind."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

import psutil
import pytest

from infra.errors import LocalError
from infra.local import processes
from infra.local.serving import write_keys
from infra.local.workspace import Workspace
from tests.local.local_stack import LocalStack, one_chip, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_failed_job_fails_up_with_what_it_said(small: LocalStack, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    source = str(tmp_path / "empty.txt")
    small.declare(
        slices=[one_chip()], workloads=[{"name": "corpus", "kind": "data", "sources": [source]}]
    )
    done = small.up()
    assert done.code != 0
    assert "job corpus-" in done.output
    assert source in done.output
    assert "Traceback" not in done.output


def test_a_faulty_stack_says_in_up_what_check_says(small: LocalStack) -> None:
    small.declare(
        slices=[one_chip(topology="4x4"), one_chip(name="tiny-2", machine_type="ct6e-standard-3t")],
        workloads=[{"name": "corpus", "kind": "data", "vocabulary": 5}],
    )
    check = small.run("raytpu", "check", small.name)
    assert check.code == 1
    lines = [line for line in check.output.splitlines() if "raytpu:" in line]
    assert len(lines) == 3
    up = small.up()
    assert up.code != 0
    assert "Traceback" not in up.output
    for line in lines:
        assert line[line.index("raytpu:") :] in up.output


def test_another_ray_of_the_machine_is_left_alone_and_not_taken_for_ours(
    small: LocalStack, tmp_path: Path
) -> None:
    mark = f"foreign-{os.getpid()}"
    temp_dir = Path("/tmp") / mark  # noqa: S108 # short, for Ray's sockets
    options = ["--head", "--port=0", f"--temp-dir={temp_dir}", "--num-cpus=1"]
    ray = str(Path(sys.executable).parent / "ray")
    processes.run(
        mark,
        [ray, "start", *options, "--dashboard-port=0", "--disable-usage-stats"],
        env=dict(os.environ),
        log=tmp_path / "foreign.log",
        timeout_s=120,
    )
    try:
        before = {process.pid for process in processes.find(mark)}
        address = (temp_dir / "ray_current_cluster").read_text()
        small.declare(
            slices=[one_chip()], workloads=[{"name": "corpus", "kind": "data", "vocab_size": 1024}]
        )
        done = small.up(RAY_ADDRESS=address)
        assert done.code == 0, done.output
        assert (small.storage / "corpus/corpus.json").is_file()
        assert before == {process.pid for process in processes.find(mark)}
    finally:
        processes.end(mark)


def test_two_stacks_are_up_at_once_and_end_apart(
    small: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    second = LocalStack(tmp_path_factory.mktemp("second"), "second")
    second.declare(slices=[one_chip()])
    before = {process.pid for process in small.processes()}
    try:
        done = second.up()
        assert done.code == 0, done.output
        assert second.outputs()["dashboard_url"] != small.outputs()["dashboard_url"]
        assert second.processes()
    finally:
        second.destroy()
    assert second.processes() == []
    assert before <= {process.pid for process in small.processes()}


def test_a_full_disk_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=2**28))
    workspace = Workspace(str(tmp_path), "full", str(tmp_path / "storage"))
    with pytest.raises(LocalError, match=r"0\.2 GiB free, 2 needed; .*raytpu:cluster\.storage"):
        workspace.prepare()


def test_a_storage_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    workspace = Workspace(str(tmp_path), "bad", str(tmp_path / "file/storage"))
    with pytest.raises(LocalError, match=r"file/storage: cannot be made \(Not a directory\)"):
        workspace.prepare()


def test_a_key_that_is_no_longer_declared_leaves_the_disk(tmp_path: Path) -> None:
    kept, dropped = tmp_path / "kept.key", tmp_path / "dropped.key"
    write_keys({kept: "one", dropped: "two"}, tmp_path)
    write_keys({kept: "three"}, tmp_path)
    assert [*tmp_path.iterdir()] == [kept]
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("three", 0o600)


def test_a_process_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    mark = f"stubborn-{os.getpid()}"
    script = "trap '' TERM; sleep 60 & while :; do sleep 1; done"
    start = f"bash -c {script!r} & sleep 0.2"
    log = tmp_path / "log"
    processes.run(mark, ["bash", "-c", start], env=dict(os.environ), log=log, timeout_s=10)
    assert len(processes.find(mark)) >= 2
    assert processes.end(mark, grace_s=0.5) >= 2
    assert processes.find(mark) == []


def test_a_mark_does_not_reach_a_mark_that_begins_with_it(tmp_path: Path) -> None:
    one, other = f"m-{os.getpid()}", f"m-{os.getpid()}0"
    for mark in (one, other):
        command = ["bash", "-c", "sleep 60 & true"]
        log = tmp_path / mark
        processes.run(mark, command, env=dict(os.environ), log=log, timeout_s=10)
    assert processes.end(one) == 1
    assert len(processes.find(other)) == 1
    processes.end(other)


def test_a_command_that_fails_leaves_nothing_and_says_its_last_line(tmp_path: Path) -> None:
    mark = f"failing-{os.getpid()}"
    command = ["bash", "-c", "sleep 60 & echo first; echo the reason; exit 3"]
    with pytest.raises(LocalError, match="exited with 3: the reason"):
        processes.run(mark, command, env=dict(os.environ), log=tmp_path / "log", timeout_s=10)
    assert processes.find(mark) == []


def test_an_engine_that_is_killed_takes_its_provider_with_it(small: LocalStack) -> None:
    small.declare(slices=[one_chip(count=2)])
    up = small.start("pulumi", "up", "--stack", small.name, "--yes", "--skip-preview")
    wait_until(lambda: _providers(small), 120, "a provider to run")
    [engine] = [p for p in psutil.Process(up.pid).children() if p.name() == "pulumi"]
    engine.kill()
    wait_until(lambda: not _providers(small), 30, "the provider to end")
    up.wait(60)
    small.declare(slices=[one_chip()])
    assert small.up("--refresh").code == 0


def _providers(stack: LocalStack) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ours = process.environ().get("RAYTPU_ROOT") == str(stack.root)
            if ours and "pulumi.dynamic" in process.cmdline():
                found.append(process)
    return found
