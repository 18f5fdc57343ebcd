"""`raytpu new`: what it offers, what it writes, and that it never hangs."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from infra.cli import offers
from infra.cli.app import app
from infra.cli.check import check_text
from infra.cli.offers import Answers
from infra.cli.stack_text import stack_text
from infra.config.cluster import region
from infra.tpu.catalog import MACHINES

EXECUTABLE = Path(sys.executable).with_name("raytpu")
FLAGS = {
    "project": "acme-ml",
    "workload": "serve",
    "machine-type": "ct6e-standard-8t",
    "topology": "2x4",
    "zones": "us-east5-b",
    "capacity": "spot",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "Pulumi.yaml").write_text("name: raytpu\nstackConfigDir: stacks\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def new(team="vision", *arguments, **flags):
    given = FLAGS | {name.replace("_", "-"): value for name, value in flags.items()}
    words = [word for flag, value in given.items() if value for word in (f"--{flag}", value)]
    return CliRunner().invoke(app, ["new", team, *arguments, *words])


def config(project, stack="vision-dev"):
    text = (project / f"stacks/Pulumi.{stack}.yaml").read_text()
    return {key.removeprefix("raytpu:"): v for key, v in yaml.safe_load(text)["config"].items()}


def answers(**changes):
    values = {
        "team": "vision",
        "environment": "dev",
        "project": "acme-ml",
        "cost_center": "vision",
        "purpose": "serve",
        "machine_type": "ct6e-standard-8t",
        "topology": "2x4",
        "zones": ("us-east5-b",),
        "capacity": ("spot",),
        "reservation": "ours",
    }
    return Answers(**{**values, **changes})


def problems(chosen):
    report = check_text(stack_text(chosen).encode(), f"Pulumi.{chosen.stack}.yaml", "new")
    return [report.unreadable] if report.unreadable else [*map(str, report.problems)]


def every_shape():
    for purpose, machine_type in product(offers.PURPOSES, offers.machine_types()):
        for topology in offers.shapes(machine_type, purpose):
            yield purpose, machine_type, topology


def test_every_shape_that_is_offered_passes_check():
    shapes = [*every_shape()]
    assert len(shapes) > 150
    for purpose, machine_type, topology in shapes:
        zones = offers.zones(machine_type)[:1]
        chosen = answers(
            purpose=purpose,
            machine_type=machine_type,
            topology=topology,
            zones=zones,
            capacity=("on_demand",),
        )
        assert problems(chosen) == [], (purpose, machine_type, topology)


@st.composite
def all_offers(draw):
    purpose, machine_type, topology = draw(st.sampled_from([*every_shape()]))
    first = draw(st.sampled_from(offers.zones(machine_type)))
    near = [zone for zone in offers.zones(machine_type) if region(zone) == region(first)]
    zones = tuple(draw(st.permutations(near))[: draw(st.integers(1, len(near)))])
    kinds = draw(st.permutations(offers.capacity(machine_type, zones)))
    return answers(
        environment=draw(st.sampled_from(["dev", "staging", "prod"])),
        purpose=purpose,
        machine_type=machine_type,
        topology=topology,
        zones=zones,
        capacity=tuple(kinds[: draw(st.integers(1, len(kinds)))]),
        budget=draw(st.none() | st.integers(1, 10**9)),
    )


@settings(max_examples=150, deadline=None)
@given(all_offers())
def test_every_combination_that_is_offered_passes_check(chosen):
    assert problems(chosen) == []


def test_what_is_not_legal_is_not_offered():
    """By hand, from the tables of docs/slices.md and of Google's zones."""
    assert offers.shapes("ct6e-standard-8t", "train") == ("2x4",)
    assert offers.shapes("ct5lp-hightpu-4t", "serve") == ("2x2", "4x4", "4x8")
    assert offers.zones("ct4p-hightpu-4t") == ("us-central2-b",)
    assert "flex_start" not in offers.capacity("ct4p-hightpu-4t", ("us-central2-b",))
    assert "flex_start" not in offers.capacity("ct6e-standard-4t", ("us-east1-d",))
    assert "flex_start" in offers.capacity("ct6e-standard-4t", ("us-east5-b",))
    assert "ct5p-hightpu-1t" not in offers.machine_types()


def test_flags_alone_write_the_file_and_show_its_price(project):
    result = new()
    assert (result.exit_code, result.stderr) == (0, "")
    assert "stacks/Pulumi.vision-dev.yaml: no faults" in result.stdout
    assert "USD a month: 8,241 to 9,091" in result.stdout
    *_, init, up = result.stdout.splitlines()
    assert (init.split()[-3:], up.split()[-3:]) == (
        ["stack", "init", "vision-dev"],
        ["up", "--stack", "vision-dev"],
    )
    written = config(project)
    assert written["slices"] == [
        {
            "name": "chat",
            "machine_type": "ct6e-standard-8t",
            "topology": "2x4",
            "capacity": [{"spot": {}}],
        }
    ]
    assert written["cluster"]["location"] == "us-east5"
    assert (written["team"]["name"], written["team"]["cost_center"]) == ("vision", "vision")


def test_what_it_wrote_passes_check_by_its_name(project):
    assert new(environment="prod").exit_code == 0
    assert (project / "stacks/Pulumi.vision-prod.yaml").exists()
    assert CliRunner().invoke(app, ["check", "vision-prod"]).exit_code == 0


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("workload", offers.PURPOSES)
def test_what_it_wrote_passes_the_review(workload):
    assert new(workload=workload).exit_code == 0
    CliRunner().invoke(app, ["render", "vision-dev", "--out", "rendered"])
    result = CliRunner().invoke(app, ["review", "rendered/vision-dev"])
    assert result.exit_code == 0, result.output
    assert " 0 mandatory" in result.stdout


def test_several_zones_take_a_compute_class(project):
    new(zones="us-east5-b, us-east5-a")
    assert config(project)["cluster"]["zones"] == ["us-east5-b", "us-east5-a"]
    assert config(project)["slices"][0]["provision"] == "compute_class"


def test_a_reservation_is_asked_for_by_name(project):
    result = new(capacity="reservation,spot")
    assert result.exit_code == 1
    assert result.stderr.startswith("--reservation: is missing")
    assert new(capacity="reservation,spot", reservation="v6e-2026").exit_code == 0
    capacity = config(project)["slices"][0]["capacity"]
    assert capacity == [{"reservation": {"name": "v6e-2026"}}, {"spot": {}}]


def test_without_a_terminal_all_missing_flags_are_named(project):
    result = CliRunner().invoke(app, ["new", "vision"])
    assert (result.exit_code, result.stdout) == (1, "")
    named = [line.split(":")[0] for line in result.stderr.splitlines()]
    assert named == [f"--{flag}" for flag in FLAGS]
    assert "give one of serve, train, cluster" in result.stderr
    assert not (project / "stacks").exists()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("machine-type", "ct5p-hightpu-1t", "--machine-type: 'ct5p-hightpu-1t' is not offered"),
        ("topology", "4x4", "--topology: '4x4' is not offered; use 2x4"),
        ("zones", "us-central2-b", "--zones: 'us-central2-b' is not offered; use us-central1-b"),
        ("zones", "us-east5-b,us-east1-d", "are zones of several regions"),
        ("zones", "us-east5-b,us-east5-b", "names one twice"),
        ("capacity", "queued", "--capacity: 'queued' is not offered; use on_demand, spot"),
        ("workload", "", None),
        ("project", "Acme", "--project: 'Acme' is no project id; write the id"),
        ("project", "a: b\n", "is no project id"),
        ("environment", "Prod 1", "--environment: 'Prod 1' cannot name"),
        ("cost-center", "R&D", "--cost-center: 'R&D' is refused by Google"),
        ("budget", "lots", "--budget: 'lots' is no budget; write whole USD, or none"),
        ("budget", "0", "--budget: '0' is no budget"),
    ],
)
def test_a_wrong_flag_is_refused_with_the_way_out(flag, value, told):
    result = new(**{flag.replace("-", "_"): value})
    assert (result.exit_code, result.stdout) == (1, "")
    assert (told or f"--{flag}: is missing") in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("team", ["Vision", "kube-system", "", "../x", "v" * 36])
def test_a_team_that_can_name_no_namespace_is_refused(team):
    result = new(team)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("--team: ")


def test_a_file_that_is_there_is_kept_without_force(project):
    new()
    file = project / "stacks/Pulumi.vision-dev.yaml"
    file.write_text("mine")
    result = new()
    assert result.exit_code == 1
    assert result.stderr == (
        "stacks/Pulumi.vision-dev.yaml: is there already; use --force to overwrite it\n"
    )
    assert file.read_text() == "mine"
    assert new("vision", "--force").exit_code == 0
    assert file.read_text() != "mine"


def test_what_costs_more_than_the_budget_is_not_written(project):
    result = new(budget="9091")
    assert result.exit_code == 1
    assert result.stderr.startswith("--budget: 9,091 is less than the 9,091 USD a month")
    assert not (project / "stacks").exists()
    assert new(budget="9092").exit_code == 0
    assert config(project)["team"]["max_usd_per_month"] == 9092


def test_without_a_project_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = new()
    assert result.exit_code == 2
    assert "there is no Pulumi.yaml" in result.stderr
    assert [*tmp_path.iterdir()] == []


def test_every_machine_type_has_a_remark_while_choosing():
    assert offers.remark("machine-type", "ct6e-standard-8t") == "  v6e, 8 chips, 256 GiB of HBM"
    assert offers.remark("topology", "1x1") == "  1 chip"
    assert all(offers.remark("machine-type", name) for name in MACHINES)


def in_terminal(folder, *arguments, typed):
    """What a real process on a terminal shows, and its exit code."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [EXECUTABLE, *arguments], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        with suppress(OSError):  # how a terminal ends that nobody has open
            while chunk := os.read(ours, 65536):
                shown += chunk
    os.close(ours)
    return shown.decode(), process.returncode


@pytest.mark.timeout(60)
def test_a_terminal_is_asked_again_until_the_answer_is_legal(project):
    typed = "\nacme-ml\n\ntrain\nct6e-standard-4t\n5x5\n4x4\nus-east5-b\nspot\n\n"
    shown, exit_code = in_terminal(project, "new", "vision", typed=typed)
    assert exit_code == 0, shown
    assert "--topology: '5x5' is not offered" in shown
    assert config(project)["slices"][0]["topology"] == "4x4"


@pytest.mark.timeout(60)
def test_the_end_of_input_writes_nothing(project):
    shown, exit_code = in_terminal(project, "new", "vision", typed="\nacme-ml\n\x04")
    assert exit_code == 1, shown
    assert "no answer; nothing is written" in shown
    assert not (project / "stacks").exists()
