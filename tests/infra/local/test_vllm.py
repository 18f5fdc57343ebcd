"""The local stack's way to vLLM: another interpreter, for the application's processes alone."""

from pathlib import Path

import pytest

from infra.local import serving, vllm
from tests.infra.config.stack import changed, read

SERVED = changed(workloads__2__engine="vllm")


@pytest.mark.parametrize(("stack", "refused"), [(SERVED, True), (changed(), False)])
def test_a_stack_whose_engine_is_not_installed_is_refused_with_the_way_out(
    monkeypatch, tmp_path, stack, refused
):
    monkeypatch.setattr(vllm, "PYTHON", tmp_path / "python")
    lines = [str(fault) for fault in vllm.faults(read(stack))]
    told = (
        "raytpu:workloads[2].engine: 'vllm' needs vLLM's build for CPUs, which is not installed; "
        "run `make vllm` (7 GiB), or use jax"
    )
    assert lines == ([told] if refused else [])
    (tmp_path / "python").touch()
    assert [*vllm.faults(read(stack))] == []


def test_the_interpreter_is_that_which_make_vllm_makes():
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    [folder] = [
        line.partition(":= ")[2] for line in makefile.splitlines() if line.startswith("VLLM")
    ]
    assert Path(__file__).parents[3] / folder / "bin/python" == vllm.PYTHON


def test_an_application_keeps_its_own_environment_and_is_restarted_with_each_version():
    props = {"version": "v2", "api_keys": {}, "key_folder": "/keys"}
    application = {"name": "chat", "args": {"a": 1}, "runtime_env": vllm.runtime_env()}
    made = serving.with_keys(application, props)
    assert made["runtime_env"]["py_executable"] == str(vllm.PYTHON)
    assert made["runtime_env"]["env_vars"]["VLLM_TARGET_DEVICE"] == "cpu"
    assert made["runtime_env"]["env_vars"]["RAYTPU_VERSION"] == "v2"
    assert "RAYTPU_VERSION" not in vllm.runtime_env()["env_vars"]
