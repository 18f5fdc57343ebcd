"""The workflow: as GitHub reads it, and nothing in it that is not there."""

import re

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from infra.cli.app import app
from tests.tools.project import REPOSITORY

FILE = REPOSITORY / ".github/workflows/stacks.yml"
# PyYAML takes the key `on` for true; GitHub does not.
WORKFLOW = yaml.load(FILE.read_text(), Loader=yaml.BaseLoader)  # noqa: S506 - text alone
JOBS = WORKFLOW["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
REPORT = (REPOSITORY / "tools/pull_request/report.py").read_text()


def test_it_runs_for_pull_requests_alone():
    """`pull_request_target` would run foreign code with rights to write."""
    assert list(WORKFLOW["on"]) == ["pull_request"]


def test_what_it_watches_exists():
    for pattern in WORKFLOW["on"]["pull_request"]["paths"]:
        assert (REPOSITORY / pattern.removesuffix("/**")).exists(), pattern


def test_no_job_may_more_than_it_needs():
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "report": {"contents": "read"},
        "comment": {"pull-requests": "write"},
    }


def test_the_job_that_writes_runs_nothing_of_the_pull_request():
    steps = JOBS["comment"]["steps"]
    assert not any("checkout" in step.get("uses", "") for step in steps)
    assert [step["run"] for step in steps if "tools/" in step.get("run", "")] == []


def test_no_credential_of_a_cloud_is_in_it():
    text = FILE.read_text()
    assert "secrets." not in text
    assert "id-token" not in text
    assert "google-github-actions" not in text


@pytest.mark.parametrize("step", [s for s in STEPS if "uses" in s], ids=lambda step: step["uses"])
def test_actions_are_github_s_own_and_pinned_by_version(step):
    assert re.fullmatch(r"actions/[-a-z]+@v\d+\.\d+\.\d+", step["uses"])


def test_every_expression_in_a_script_comes_by_a_variable():
    """A branch's name in a script would be run as a part of it."""
    assert not any("${{" in step.get("run", "") for step in STEPS)


def test_what_it_runs_exists():
    runs = "\n".join(step["run"] for step in STEPS if "run" in step)
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = re.findall(r"make (\w+)", runs)
    assert targets == ["environment"]
    assert all(f"\n{target}:" in makefile for target in targets)
    scripts = re.findall(r"tools/[\w/.]+", runs)
    assert "tools/pull_request/report.py" in scripts
    assert all((REPOSITORY / script).is_file() for script in scripts)


def test_the_report_runs_commands_that_exist_with_their_options():
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    commands = group.commands
    called = re.findall(r'_raytpu\(\s*\w+, "(\w+)"([^)]*)', REPORT)
    assert {name for name, _ in called} == {"check", "cost", "render", "review"}
    for name, rest in called:
        known = {option for param in commands[name].params for option in param.opts}
        assert {*re.findall(r'"(--[-\w]+)"', rest)} <= known, name
