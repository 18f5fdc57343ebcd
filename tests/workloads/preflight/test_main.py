"""The compiling process: what it remembers, and what it says when it cannot go on."""

import io
import sys
import time

import pytest

from infra.preflight import compiler as client
from infra.preflight.compiler import Compiler, CompilerError
from tests.workloads.preflight.compiled import serve, train
from workloads.preflight import cache as caches
from workloads.preflight.main import main
from workloads.preflight.program import Answer, Measured

MEASURED = Measured(argument_bytes=3, hbm_bytes=5, limit_bytes=8, flops=2.0, traffic_bytes=4.0)


@pytest.fixture
def measured(monkeypatch):
    """The programs that were compiled."""
    import workloads.preflight.compile

    programs = []

    def measure(program):
        programs.append(program)
        return MEASURED

    monkeypatch.setattr(workloads.preflight.compile, "measure", measure)
    return programs


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    def asked(*programs):
        lines = "".join(program.model_dump_json() + "\n" for program in programs)
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        assert main(["--cache", str(tmp_path / "cache")]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [Answer.model_validate_json(line) for line in lines]

    return asked


def test_what_was_measured_before_is_not_compiled_again(ask, measured):
    [first] = ask(train())
    [second] = ask(train())
    assert (first.cached, second.cached) == (False, True)
    assert first.measured == second.measured == MEASURED
    assert measured == [train()]


OTHERS = {
    "batch": train(global_batch=16),
    "mesh": train(mesh={"data": 2, "tensor": 2}),
    "dtype": train(dtype="float32"),
    "remat": train(remat="layers"),
    "parts": train(gradient_accumulation_steps=2),
    "slices": train(slices=2),
    "tokens": train(tokens=64),
    "layers": train(sizes={"layers": 2}),
    "decode": serve("decode"),
    "prefill": serve("prefill"),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_whatever_decides_is_measured_by_itself(ask, measured, other):
    assert [answer.cached for answer in ask(train(), other)] == [False, False]
    assert measured == [train(), other]


def test_a_longer_run_at_another_rate_is_the_same_program(ask, measured):
    ask(train(), train(steps=7, learning_rate=0.5, seed=3, log_every=1))
    assert len(measured) == 1


@pytest.mark.parametrize("change", ["code", "versions"])
def test_other_code_or_versions_measure_anew(ask, measured, monkeypatch, change):
    ask(train())
    if change == "code":
        monkeypatch.setattr(caches, "CODE", caches.CODE[1:])
    else:
        monkeypatch.setattr(caches, "version", lambda name: f"{name} of tomorrow")
    ask(train())
    assert len(measured) == 2


def test_a_damaged_or_missing_cache_is_compiled_over(ask, measured, tmp_path):
    ask(train())
    [file] = (tmp_path / "cache").iterdir()
    file.write_text(file.read_text()[:-5])
    assert [answer.cached for answer in ask(train())] == [False]
    assert [answer.cached for answer in ask(train())] == [True]
    assert len(measured) == 2


def test_a_cache_that_cannot_be_written_is_no_fault(ask, measured, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert [answer.measured for answer in ask(train())] == [MEASURED]
    assert len(measured) == 1


def of(script, tmp_path, timeout_s=30.0):
    """A compiler that is another program."""
    compiler = Compiler(tmp_path, timeout_s)
    compiler._command = [sys.executable, "-c", script]  # noqa: SLF001 # in place of the real one
    return compiler


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "import os; os.abort()",
            r"ended the compiler by signal 6 \(it said nothing\); run `make setup`, then try again",
        ),
        (
            "import sys; input(); sys.exit('cannot open libtpu')",
            r"ended the compiler with code 1 \(cannot open libtpu\); run `make setup`, .*",
        ),
    ],
)
def test_a_compiler_that_ends_is_told_in_a_line(tmp_path, script, said):
    with of(script, tmp_path) as compiler, pytest.raises(CompilerError, match=said):
        compiler.ask(train())


def test_a_compiler_that_hangs_is_ended_within_its_limit(tmp_path):
    began = time.monotonic()
    with of("import time; time.sleep(600)", tmp_path, timeout_s=1.0) as compiler:
        process = compiler._process = compiler._start()  # noqa: SLF001
        with pytest.raises(CompilerError, match="not compiled within 1 s; allow more"):
            compiler.ask(train())
        assert process.poll() is not None
    assert time.monotonic() - began < client.END_TIMEOUT_S + 20


def test_no_variable_of_the_shell_reaches_the_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/x")
    monkeypatch.setenv("TPU_TOPOLOGY", "16x16")
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    script = (
        "import os, sys; input(); names = 'JAX_PLATFORMS', 'TPU_TOPOLOGY', 'XLA_FLAGS';"
        "sys.exit(str([os.environ.get(name) for name in names]))"
    )
    said = r"\(\['cpu', None, None\]\)"
    with of(script, tmp_path) as compiler, pytest.raises(CompilerError, match=said):
        compiler.ask(train())
