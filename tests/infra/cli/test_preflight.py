"""`raytpu preflight`: what it prints and how it exits. Some of these compile for a v5e 2x2."""

import json
import sys

import pytest
import yaml
from typer.testing import CliRunner

from infra.cli.app import app
from infra.preflight.compiler import Compiler
from tests.infra.config.stack import GKE, SOUND, changed, on_gke

pytestmark = pytest.mark.timeout(900)
LARGE = {  # 1.5 billion parameters: 18 GB with what Adam keeps of them, on chips of 16 GiB
    "layers": 1,
    "hidden_size": 8192,
    "intermediate_size": 57344,
    "attention_heads": 4,
    "key_value_heads": 4,
    "head_dim": 128,
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "Pulumi.yaml").write_text("name: raytpu\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def broken(monkeypatch):
    """A compiler that ends by itself."""
    start = Compiler._start  # noqa: SLF001 # what a test has to reach

    def other(self):
        self._command = [sys.executable, "-c", "import sys; sys.exit('no libtpu here')"]
        return start(self)

    monkeypatch.setattr(Compiler, "_start", other)


def write(path, stack):
    values = {f"raytpu:{key}": value for key, value in stack.items()}
    path.write_text(yaml.safe_dump({"config": values}))
    return str(path)


def preflight(*arguments):
    return CliRunner().invoke(app, ["preflight", *arguments])


def too_large(mesh):
    """Training alone, on a v5e 2x2."""
    host = {"name": "train", "machine_type": "ct5lp-hightpu-4t", "topology": "2x2"}
    trainer = {**SOUND["workloads"][1], "mesh": mesh, "global_batch": 8, "model": LARGE}
    return {**SOUND, "slices": [host], "workloads": [SOUND["workloads"][0], trainer]}


def test_a_model_too_large_is_refused_with_a_mesh_that_then_fits(project):
    declared = preflight(write(project / "Pulumi.large.yaml", too_large({"data": 4})))
    assert declared.exit_code == 1, declared.output
    [line] = [line for line in declared.stdout.splitlines() if "needs" in line]
    assert line.startswith(
        "Pulumi.large.yaml: raytpu:workloads[1]: train of pretrain needs more than "
    )
    assert "of slice train it may have 16.00; use mesh data 2 x fsdp 2 x tensor 1, which" in line

    proposed = write(project / "Pulumi.cut.yaml", too_large({"data": 2, "fsdp": 2, "tensor": 1}))
    fitting = preflight(proposed, "--json")
    assert fitting.exit_code == 0, fitting.output
    [stack] = json.loads(fitting.stdout)["stacks"]
    [step] = stack["steps"]
    assert step["cached"]  # it was compiled to be proposed
    assert step["fits"]
    assert f"which needs {step['hbm_bytes'] / 2**30:.2f}" in line
    assert step["hbm_bytes"] > step["argument_bytes"] > 12 * 1.5e9 / 2
    assert step["estimate"]["step_s"] > 0

    table = preflight(proposed).stdout
    assert table.startswith("Pulumi.cut.yaml: 1 step compiled, and all fit\n")
    row = table.splitlines()[-1]
    assert row.split("  ")[:4] == ["pretrain", "train", "v5e 2x2", "data 2 x fsdp 2 x tensor 1"]
    assert "of 16 GiB" in row


@pytest.mark.usefixtures("project", "broken")
def test_a_stack_at_fault_or_missing_is_not_compiled(tmp_path):
    bad = write(tmp_path / "Pulumi.bad.yaml", changed(slices__0__topology="5x5"))
    result = preflight(bad)
    assert result.exit_code == 1
    assert "raytpu:slices[0].topology: '5x5' is no topology" in result.stdout
    missing = preflight("nowhere")
    assert missing.exit_code == 2
    assert missing.stderr.startswith("nowhere: there is no file Pulumi.nowhere.yaml; use ")
    assert missing.stdout == ""


@pytest.mark.usefixtures("broken")
def test_a_compiler_that_ends_is_a_line_for_each_workload_and_exit_code_2(project):
    result = preflight(write(project / "Pulumi.good.yaml", SOUND))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"Pulumi.good.yaml: raytpu:workloads[{index}]: {name} ended the compiler with code 1 "
        "(no libtpu here); run `make setup`, then try again"
        for index, name in ((1, "pretrain"), (2, "chat"))
    ]


@pytest.mark.usefixtures("broken")
def test_what_cannot_be_known_is_said_and_is_no_fault(project):
    """No compiler is asked for what vLLM runs, nor for a corpus that lies elsewhere."""
    corpus = {"path": "gs://acme-corpora/english"}
    stack = on_gke(workloads__1__data=corpus)
    stack["workloads"] = stack["workloads"][1:]
    result = preflight(write(project / "Pulumi.gke.yaml", stack))
    assert result.exit_code == 0, result.output
    file = "Pulumi.gke.yaml"
    assert result.stdout.splitlines() == [
        f"{file}: no step",
        f"{file}: raytpu:workloads[0]: pretrain: vocabulary and sequence length are those of the "
        f"corpus in gs://acme-corpora/english, not known here (not checked)",
        f"{file}: raytpu:workloads[1]: chat is served by vllm, which compiles by itself "
        "(not checked)",
    ]
    [found] = json.loads(preflight("gke", "--json").stdout)["stacks"]
    assert [one["where"] for one in found["not_checked"]] == [
        "raytpu:workloads[0]",
        "raytpu:workloads[1]",
    ]
    assert GKE["workloads"][2]["engine"] == "vllm"


def test_a_generation_whose_chips_are_two_devices_is_a_fault(project):
    host = {"name": "train", "machine_type": "tpu7x-standard-4t", "topology": "2x2x1"}
    stack = too_large({"data": 4}) | {"slices": [host]}
    result = preflight(write(project / "Pulumi.ironwood.yaml", stack))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == (
        "Pulumi.ironwood.yaml: raytpu:workloads[1]: pretrain: JAX sees 4 chips of tpu7x as 8 "
        "devices, and the mesh counts chips; use another generation"
    )
