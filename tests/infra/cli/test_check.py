"""`raytpu check`: what it prints and how it exits."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from infra.cli.app import app
from tests.infra.config.stack import GKE, SOUND, changed, faults, on_gke

REPOSITORY = Path(__file__).parents[3]
STACKS = sorted((REPOSITORY / "stacks").rglob("Pulumi.*.yaml"))
EXECUTABLE = Path(sys.executable).with_name("raytpu")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one sound stack, `good`, and one with two faults, `bad`."""
    (tmp_path / "Pulumi.yaml").write_text("name: raytpu\nstackConfigDir: stacks\n")
    (tmp_path / "stacks").mkdir()
    (tmp_path / "below").mkdir()
    write(tmp_path / "stacks/Pulumi.good.yaml", SOUND)
    write(
        tmp_path / "stacks/Pulumi.bad.yaml",
        changed(slices__0__topology="5x5", workloads__1__steps=3),
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, stack):
    values = {f"raytpu:{key}": value for key, value in stack.items()}
    path.write_text(yaml.safe_dump({"config": values}))


def check(*arguments):
    return CliRunner().invoke(app, ["check", *arguments])


@pytest.mark.usefixtures("project")
def test_a_sound_stack_is_shown_and_exits_with_0():
    result = check("good")
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = [line.split() for line in result.stdout.splitlines()]
    for row in (
        ["slice", "train", "chat"],
        ["topology", "4x4", "2x2"],
        ["chips", "16", "4"],
        ["HBM", "512", "GiB", "128", "GiB"],
        ["Ray", "TPU-V6E,", "v6e-16", "TPU-V6E,", "v6e-4"],
        ["Ray", "workers", "4", "1"],
    ):
        assert row in lines
    assert any(line[:3] == ["pretrain", "train", "train"] for line in lines)


@pytest.mark.usefixtures("project")
def test_faults_are_lines_with_their_file_and_exit_with_1():
    result = check("bad")
    assert result.exit_code == 1
    expected = faults(changed(slices__0__topology="5x5", workloads__1__steps=3))
    assert result.stdout.splitlines() == [f"stacks/Pulumi.bad.yaml: {line}" for line in expected]
    assert len(expected) == 2


@pytest.mark.usefixtures("project")
def test_all_stacks_are_checked_and_the_worst_decides():
    result = check("bad", "good", "stacks/Pulumi.bad.yaml")
    assert result.exit_code == 1
    assert result.stdout.count("raytpu:slices[0].topology") == 2
    assert "stacks/Pulumi.good.yaml: no faults" in result.stdout
    result = check("bad", "nope", "good")
    assert result.exit_code == 2
    assert "raytpu:slices[0].topology" in result.stdout
    assert result.stderr == ("nope: there is no file stacks/Pulumi.nope.yaml; use bad or good\n")


def test_a_stack_is_found_from_a_folder_below(project, monkeypatch):
    monkeypatch.chdir(project / "below")
    result = check("good")
    assert result.exit_code == 0
    assert f"{project}/stacks/Pulumi.good.yaml: no faults" in result.stdout


def test_without_a_project_a_name_is_refused_and_a_file_is_read(
    project, monkeypatch, tmp_path_factory
):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    result = check("good")
    assert result.exit_code == 2
    assert "there is no Pulumi.yaml" in result.stderr
    assert check(str(project / "stacks/Pulumi.good.yaml")).exit_code == 0


@pytest.mark.parametrize(
    "text", ["config: [", "- a", "config:\n  a: 1\n  a: 2\n", "", "config:\n\ta: 1\n"]
)
def test_a_file_that_cannot_be_read_exits_with_2_and_one_line(project, text):
    path = project / "stacks/Pulumi.broken.yaml"
    path.write_text(text)
    result = check("broken")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "stacks/Pulumi.broken.yaml" in result.stderr


def test_bad_arguments_exit_with_2():
    assert check().exit_code == 2
    assert check("--jsno", "good").exit_code == 2


@pytest.mark.usefixtures("project")
def test_json_says_the_same():
    result = check("--json", "good", "bad", "nope")
    assert result.exit_code == 2
    good, bad, nope = json.loads(result.stdout)["stacks"]
    assert [one["exit_code"] for one in (good, bad, nope)] == [0, 1, 2]
    assert [one["pod_type"] for one in good["slices"]] == ["v6e-16", "v6e-4"]
    assert good["slices"][0]["pools"] == [4]
    assert good["workloads"][2]["api_key"] is False
    assert {problem["where"] for problem in bad["problems"]} == {
        "raytpu:slices[0].topology",
        "raytpu:workloads[1].warmup_steps",
    }
    assert "no file" in nope["unreadable"]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_secret_is_told_to_be_there_and_not_shown(project, form):
    write(
        project / "stacks/Pulumi.sealed.yaml",
        changed(workloads__2__api_key={"secure": "v1:ciphertext"}),
    )
    result = check(*form, "sealed")
    assert result.exit_code == 0
    assert "ciphertext" not in result.output
    assert ('"api_key": true' if form else "with an API key") in result.stdout


def test_brackets_in_a_message_are_not_taken_for_markup(project):
    stack = changed(workloads__2__api_key={"secure": "v1:x"}, workloads__2__slice="[bold]no[/bold]")
    write(project / "stacks/Pulumi.sealed.yaml", stack)
    assert "raytpu:workloads[2].slice: [secret] is no slice" in check("sealed").stdout
    write(project / "stacks/Pulumi.open.yaml", changed(workloads__2__slice="[bold]no[/bold]"))
    assert "'[bold]no[/bold]' is no slice" in check("open").stdout


def test_the_command_as_installed_checks_the_stack_we_ship():
    result = subprocess.run(
        [EXECUTABLE, "check", "stacks/Pulumi.local.yaml"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "v6e-16" in result.stdout


@pytest.mark.parametrize("file", STACKS, ids=[path.stem for path in STACKS])
def test_every_stack_that_we_ship_has_no_faults(file):
    result = check(str(file))
    assert result.exit_code == 0, result.stdout
    assert f"{file.name}: no faults" in result.stdout


def test_all_stacks_are_checked_in_less_than_a_second():
    started = time.process_time()
    result = check("--json", *map(str, STACKS))
    assert time.process_time() - started < 1
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["stacks"]) == len(STACKS) >= 10


def rows(*arguments):
    """Cells of the tables of one stack, by the first."""
    lines = check(*arguments).stdout.splitlines()
    table = [re.split(r" {2,}", line.strip()) for line in lines if "  " in line.strip()]
    return {first: cells for first, *cells in table}


def test_a_stack_on_gke_shows_how_its_hosts_come_to_be():
    shown = rows(str(REPOSITORY / "stacks/Pulumi.staging.yaml"))
    assert shown["capacity"] == [
        "spot, then flex-start for 3d, then reservation v6e-2026, then on-demand",
        "reservation v6e-2026, then on-demand",
    ]
    assert shown["zones"] == ["us-east5-b, us-east5-a"] * 2
    assert shown["node pools"] == ["by a compute class, of 4 nodes"] * 2
    shown = rows(str(REPOSITORY / "stacks/Pulumi.prod.yaml"))
    assert shown["node pools"] == ["2 of 8 nodes, kept", "1 of 2 nodes, kept"]
    shown = rows(str(REPOSITORY / "stacks/Pulumi.dev.yaml"))
    assert shown["node pools"] == ["1 of 1 node, empty when idle"]
    assert "instead" not in shown


def test_other_shapes_are_shown_with_their_capacity():
    shown = rows(str(REPOSITORY / "stacks/examples/Pulumi.two-shapes.yaml"))
    assert shown["instead"] == ["4x4 on ct5lp-hightpu-4t: reservation v5e-2026"]


def test_a_cluster_of_others_shows_its_node_pools_as_theirs():
    shown = rows(str(REPOSITORY / "stacks/Pulumi.existing.yaml"))
    assert shown["node pools"] == ["by a compute class, of 4 nodes", "1 of 1 node, made by others"]
    assert shown["zones"] == ["as GKE chooses"] * 2


def test_what_only_google_knows_is_said_to_be_unchecked(project):
    write(project / "stacks/Pulumi.gke.yaml", GKE)
    (line,) = [line for line in check("gke").stdout.splitlines() if "(not checked)" in line]
    assert line == (
        "stacks/Pulumi.gke.yaml: quota, images, whether there is capacity, "
        "whether n2-standard-8 is offered in the zones (not checked)"
    )
    assert "not checked" not in check("good").stdout


def test_json_of_a_stack_on_gke_has_the_cluster_and_the_ladders(project):
    ladder = [{"flex_start": {"max_run_duration": "36h"}}, {"spot": {"zone": "us-east5-b"}}]
    write(project / "stacks/Pulumi.gke.yaml", on_gke(slices__0__capacity=ladder))
    (stack,) = json.loads(check("--json", "gke").stdout)["stacks"]
    assert stack["cluster"]["zones"] == ["us-east5-b"]
    assert stack["slices"][0]["provision"] == "compute_class"
    assert stack["slices"][0]["capacity"] == [
        {"kind": "flex-start", "zone": None, "max_run_duration": "36h", "queued": False},
        {"kind": "spot", "zone": "us-east5-b"},
    ]
    assert stack["workloads"][1]["deadline"] == "1d"


def test_a_password_and_a_token_are_not_shown(project):
    sealed = {"secure": "v1:ciphertext"}
    redis = {"address": "redis://redis:6379", "password": sealed}
    stack = on_gke(hugging_face_token=sealed, workloads__2__redis=redis)
    write(project / "stacks/Pulumi.sealed.yaml", stack)
    for form in ([], ["--json"]):
        result = check(*form, "sealed")
        assert result.exit_code == 0
        assert "ciphertext" not in result.output
    (shown,) = json.loads(check("--json", "sealed").stdout)["stacks"]
    assert shown["workloads"][2]["redis"] == {**redis, "password": True}


def test_a_terminal_without_the_letters_of_a_message_still_gets_it(project):
    path = project / "stacks/Pulumi.odd.yaml"
    write(path, changed(workloads__2__slice="\u00e9t\u00e9"))
    result = subprocess.run(
        [EXECUTABLE, "check", str(path)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (1, "")
    assert "'\\xe9t\\xe9' is no slice" in result.stdout


def test_checking_loads_neither_ray_nor_jax_nor_pulumi():
    code = (
        "import sys; from infra.cli.app import app\n"
        "try: app(['check', 'stacks/Pulumi.local.yaml'])\n"
        "except SystemExit: print({'ray', 'jax', 'pulumi', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stdout.splitlines()[-1] == "set()"
