"""`raytpu preflight`: what it prints and how it exits. Some of these compile for a v5e 2x2."""

import json
import re
import sys

import pytest
import yaml
from typer.testing import CliRunner

from infra.cli.app import app
from infra.preflight.compiler import Compiler
from tests.infra.config.stack import GKE, SOUND, changed, on_gke
from workloads.preflight.program import Answer, Collective, Measured

pytestmark = pytest.mark.timeout(900)
SMALL = {
    "layers": 1,
    "hidden_size": 128,
    "intermediate_size": 256,
    "attention_heads": 16,
    "key_value_heads": 16,
    "head_dim": 8,
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


@pytest.fixture
def played(monkeypatch):
    """A compiler by which each step does two seconds of work and takes one of each resource."""
    collectives = [("all-reduce", 32, 3 * 2**20), ("dcn", 2, 2**20)]
    measured = Measured(
        argument_bytes=2**30,
        hbm_bytes=3 * 2**30,
        limit_bytes=32 * 2**30,
        flops=2 * 918e12,
        traffic_bytes=1638e9,
        collectives=tuple(
            Collective.model_validate(
                {"kind": kind, "group": group, "count": 1, "payload_bytes": payload}
            )
            for kind, group, payload in collectives
        ),
        unknown_loops=2,
    )
    monkeypatch.setattr(Compiler, "ask", lambda *_: Answer(measured=measured))


def write(path, stack):
    values = {f"raytpu:{key}": value for key, value in stack.items()}
    path.write_text(yaml.safe_dump({"config": values}))
    return str(path)


def preflight(*arguments):
    return CliRunner().invoke(app, ["preflight", *arguments])


def training(**settings):
    """Alone, on a v5e 2x2."""
    host = {"name": "train", "machine_type": "ct5lp-hightpu-4t", "topology": "2x2"}
    corpus = {**SOUND["workloads"][0], "sequence_length": 4096}
    trainer = {
        **SOUND["workloads"][1],
        "mesh": {"data": 4},
        "global_batch": 64,
        "model": SMALL,
        **settings,
    }
    return {**SOUND, "slices": [host], "workloads": [corpus, trainer]}


def test_activations_too_large_are_refused_with_settings_that_then_fit(project):
    """Scores of 16 sequences of 4096 tokens and 16 heads a chip: 8 GiB in bfloat16 alone."""
    declared = preflight(write(project / "Pulumi.large.yaml", training()))
    assert declared.exit_code == 1, declared.output
    [line] = [line for line in declared.stdout.splitlines() if " needs " in line]
    assert line.startswith("Pulumi.large.yaml: raytpu:workloads[1]: train of pretrain needs ")
    said = "GiB of HBM a chip, and of slice train it may have 15.75; use (.*), which needs (.*)"
    found = re.search(said, line)
    assert found, line
    names = re.findall(r"(remat|gradient_accumulation_steps) (\w+)", found[1])
    settings = {name: int(value) if value.isdigit() else value for name, value in names}
    assert settings

    proposed = write(project / "Pulumi.parts.yaml", training(**settings))
    fitting = preflight(proposed, "--json")
    assert fitting.exit_code == 0, fitting.output
    [stack] = json.loads(fitting.stdout)["stacks"]
    [step] = stack["steps"]
    assert step["cached"]  # it was compiled to be proposed
    assert step["fits"]
    assert found[2] == f"{step['hbm_bytes'] / 2**30:.2f}"
    assert step["argument_bytes"] < 2**23 < step["hbm_bytes"] < 15.75 * 2**30
    assert step["estimate"]["step_s"] > 0

    table = preflight(proposed).stdout.splitlines()
    assert table[0] == "Pulumi.parts.yaml: 1 step compiled, and all fit"
    assert table[-1].split("  ")[:2] == ["pretrain", "train"]
    assert "v5e 2x2  data 4 x tensor 1  " in table[-1]
    assert " GiB of 16 GiB  " in table[-1]


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


@pytest.mark.usefixtures("played")
def test_a_run_over_several_slices_is_shown_with_what_crosses_them(project):
    slices = {"slices__0__topology": "4x8", "slices__0__count": 2}
    trainer = {"workloads__1__mesh": {"data": 16, "tensor": 4}, "workloads__1__global_batch": 64}
    heads = {"workloads__1__model": {"attention_heads": 8, "key_value_heads": 4}}
    stack = on_gke(**slices, **trainer, **heads, workloads__1__dtype="float32")
    result = preflight(write(project / "Pulumi.two.yaml", stack))
    assert result.exit_code == 0, result.output
    lines = [line.removeprefix("Pulumi.two.yaml: ") for line in result.stdout.splitlines()]
    place = "raytpu:workloads[1]: train of pretrain:"
    rounds = "2 loops send something each round, and how many rounds is not known"
    assert lines[:4] == [
        "1 step compiled, and all fit",
        "raytpu:workloads[2]: chat is served by vllm, which compiles by itself (not checked)",
        f"{place} the time is that of bfloat16; float32 takes several times as long",
        f"{place} {rounds}: they count as one",
    ]
    headings, row = (re.split("  +", line) for line in lines[4:])
    assert dict(zip(headings, row, strict=True)) == {
        "workload": "pretrain",
        "step": "train",
        "slice": "2 x v6e 4x8",
        "mesh": "data 16 x tensor 4",
        "HBM a chip": "3 GiB of 32 GiB",
        "TFLOP a chip": "1836",
        "sent a chip": "3 MiB, 1 MiB between slices",
        "time at best": "2 s",
        "bound by": "compute",
        "utilisation": "at most 100%",
    }


@pytest.mark.usefixtures("broken")
def test_what_cannot_be_known_is_said_and_is_no_fault(project):
    """No compiler is asked for what vLLM runs, nor for a corpus that lies elsewhere."""
    host = {"name": "batch", "machine_type": "ct6e-standard-4t", "topology": "2x2"}
    scored = {"name": "scored", "kind": "infer", "slice": "batch", "model": "pretrain"}
    stack = on_gke(workloads__1__data={"path": "gs://acme-corpora/english"}, slices__2=host)
    stack["workloads"] = [*stack["workloads"][1:], {**scored, "prompts": ["gs://acme/p.jsonl"]}]
    result = preflight(write(project / "Pulumi.gke.yaml", stack))
    assert result.exit_code == 0, result.output
    corpus = "vocabulary and sequence length are those of the corpus in gs://acme-corpora/english"
    told = [
        "no step",
        f"raytpu:workloads[0]: pretrain: {corpus}, not known here (not checked)",
        "raytpu:workloads[1]: chat is served by vllm, which compiles by itself (not checked)",
        "raytpu:workloads[2]: scored infers in batches, which is not compiled here (not checked)",
    ]
    assert result.stdout.splitlines() == [f"Pulumi.gke.yaml: {line}" for line in told]
    [found] = json.loads(preflight("gke", "--json").stdout)["stacks"]
    assert [one["where"] for one in found["not_checked"]] == [
        "raytpu:workloads[0]",
        "raytpu:workloads[1]",
        "raytpu:workloads[2]",
    ]
    assert GKE["workloads"][2]["engine"] == "vllm"


@pytest.mark.usefixtures("played")
def test_the_figures_of_tpu7x_are_those_of_a_device_and_it_is_said(project):
    """Half of a chip's 2307 TFLOP a second, for 1836."""
    host = {"name": "train", "machine_type": "tpu7x-standard-4t", "topology": "2x2x1"}
    stack = training(mesh={"data": 8}) | {"slices": [host]}
    result = preflight(write(project / "Pulumi.ironwood.yaml", stack))
    assert result.exit_code == 0, result.output
    assert (
        "Pulumi.ironwood.yaml: raytpu:workloads[1]: train of pretrain: the figures are those of a "
        "device, of which a chip of tpu7x is 2; each is taken to have its share of the chip's "
        "peaks, and of its links, which is an estimate"
    ) in result.stdout.splitlines()
    row = re.split("  +", result.stdout.splitlines()[-1])
    assert (row[2], row[7]) == ("tpu7x 2x2x1", "1.59 s")
