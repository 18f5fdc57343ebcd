"""A host's process without Ray: two of them find each other, and each tells how it ended."""

import os
import pickle
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.simulated import CONTRACT
from workloads.slice_group import Rendezvous
from workloads.spmd.program import Context, Outcome, Part

PROGRAMS = "tests.workloads.spmd.programs"
ROOT = Path(__file__).parents[3]
LIMIT_S = 90


class Host:
    """One child, started as its actor starts it."""

    def __init__(self, folder, program, args=(), processes=1, process=0, port=0):
        self._outcome = folder / f"outcome-{process}.json"
        contract = replace(CONTRACT, hosts=processes)
        place = Rendezvous(f"127.0.0.1:{port or free_port()}", processes, process)
        part = Part(program, tuple(args), Context(contract, str(folder), 1), place)
        chips = f"--xla_force_host_platform_device_count={CONTRACT.devices_per_host}"
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "workloads.spmd.child", str(self._outcome)],
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": chips, **part.variables},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self.process.stdin
        with self.process.stdin as given:
            given.write(pickle.dumps(part))

    def end(self) -> tuple[int, str, Any]:
        """Exit code, what it printed, and the outcome that it wrote."""
        assert self.process.stdout
        with self.process.stdout as output:
            printed = output.read().decode()
        code = self.process.wait(LIMIT_S)
        there = self._outcome.exists()
        return (
            code,
            printed,
            Outcome.model_validate_json(self._outcome.read_text()) if there else None,
        )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pair(folder, program, args=()):
    port = free_port()
    return [Host(folder, program, args, 2, process, port) for process in range(2)]


def test_a_function_is_called_on_both_hosts_when_jax_is_up_over_them(tmp_path):
    (code, printed, first), (other_code, _, second) = (
        host.end() for host in pair(tmp_path, f"{PROGRAMS}:total", ["3", "4"])
    )
    assert (code, other_code) == (0, 0), printed
    assert "8 devices on 2 hosts" in printed
    assert first.returned == {"total": 15, "hosts": 2, "attempt": 1}
    assert second == Outcome()


@pytest.mark.parametrize("program", [PROGRAMS, "tests/workloads/spmd/programs.py"])
def test_a_script_starts_jax_itself_without_arguments(tmp_path, program, monkeypatch):
    monkeypatch.setenv("MY_FLAG", "on")
    ends = [host.end() for host in pair(tmp_path, program, ["--steps", "3"])]
    for code, printed, outcome in ends:
        assert code == 0, printed
        assert '{"devices": 8, "steps": 3, "flag": "on"}' in printed
        assert outcome is None  # it ended by sys.exit


def test_a_host_that_fails_ends_at_once_though_others_wait_for_it(tmp_path):
    started = time.monotonic()
    first, second = pair(tmp_path, f"{PROGRAMS}:fails_on_one_host", ["1"])
    code, printed, outcome = second.end()
    assert code == 1
    assert outcome.error == "ValueError: no batch left on process 1"
    assert outcome.faults == ()
    assert "programs.py" in printed  # its own traceback
    assert time.monotonic() - started < LIMIT_S
    first.process.kill()
    first.end()


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        (f"{PROGRAMS}:totl", f"program: {PROGRAMS} has no totl; correct the name"),
        ("tests.no.such:main", "program: there is no module tests.no on the hosts; correct the"),
        (f"{PROGRAMS}:returns_a_set", "returned what is not JSON (Object of type set is not JSON"),
    ],
)
def test_what_is_the_users_to_mend_is_one_line_and_no_traceback(tmp_path, program, fault):
    code, printed, outcome = Host(tmp_path, program).end()
    assert code == 1
    assert fault in outcome.faults[0]
    assert "Traceback" not in printed


def test_an_aborted_process_leaves_no_outcome(tmp_path):
    code, _, outcome = Host(tmp_path, f"{PROGRAMS}:is_aborted").end()
    assert (code, outcome) == (-6, None)
