"""`raytpu cost`: what it prints, what it compares with, and how it exits."""

import json
import subprocess

import pytest
import yaml
from typer.testing import CliRunner

from infra.cli.app import app
from tests.tools.project import REPOSITORY

DEV = REPOSITORY / "stacks/Pulumi.dev.yaml"
LOCAL = REPOSITORY / "stacks/Pulumi.local.yaml"
STAGING = REPOSITORY / "stacks/Pulumi.staging.yaml"
CONFIG = yaml.safe_load(DEV.read_text())["config"]


def cost(*arguments):
    return CliRunner().invoke(app, ["cost", *map(str, arguments)])


def as_json(*arguments):
    result = cost(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def write(path, **changes):
    """The dev stack with keys of namespace raytpu put in."""
    config = CONFIG | {f"raytpu:{key}": value for key, value in changes.items()}
    path.write_text(yaml.safe_dump({"config": config}))
    return path


def with_slice(path, **changes):
    [chat] = CONFIG["raytpu:slices"]
    return write(path, slices=[chat | changes])


def git(folder, *arguments):
    names = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """With the dev stack committed and tagged `before`."""
    git(tmp_path, "init", "-q")
    write(tmp_path / "Pulumi.dev.yaml")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "a stack")
    git(tmp_path, "tag", "before")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_shows_each_part_and_the_sum():
    result = cost(DEV)
    assert (result.exit_code, result.stderr) == (0, "")
    first, _, chat, *_ = result.stdout.splitlines()
    assert first.endswith("USD a month: 8,241 to 9,091")
    assert " ".join(chat.split()) == (
        "slice chat 2x4 of v6e, spot, us-east5-b 8 chips 730 5,840 chip-hours 1.3500 7,884 serves"
    )


@pytest.mark.parametrize(
    "path",
    [path for path in REPOSITORY.glob("stacks/**/Pulumi.*.yaml") if path != LOCAL],
    ids=lambda path: path.stem,
)
@pytest.mark.parametrize("form", ["--json", "--markdown", "--hours-per-month=0"])
def test_every_stack_of_this_repository_has_a_price(path, form):
    result = cost(path, form, "--against", DEV)
    assert (result.exit_code, result.stderr) == (0, "")


def test_what_is_assumed_and_not_counted_is_said_with_sources_and_dates():
    text = cost(DEV).stdout
    assert "assumed: a month of 730 hours, 1 run(s) of each training job" in text
    assert "not counted: disks, buckets" in text
    assert "Cloud Billing Catalog by script (2026-09-11, confidence medium)" in text


def test_an_unknown_price_says_unknown_and_the_sum_partial():
    text = cost(STAGING).stdout
    assert "(partial)" in text.splitlines()[0]
    assert "price unknown: slice train, 4x4 of v6e, reservation, us-east5-b" in text


def test_json_has_the_same_numbers():
    document = as_json(DEV)
    assert document["usd_per_month"] == {"least": 8240.58, "most": 9091.34, "partial": False}
    [option] = document["lines"][0]["options"]
    assert (option["unit_hours"], option["usd"]) == (5840, 7884)


def test_markdown_is_tables_of_equal_width():
    lines = cost(DEV, "--against", STAGING, "--markdown").stdout.splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables} == {5, 9}
    assert any("-23,652 (partial)" in line for line in tables)


def test_hours_and_runs_may_be_said():
    document = as_json(DEV, "--hours-per-month", "100")
    assert document["lines"][0]["options"][0]["unit_hours"] == 800
    document = as_json(STAGING, "--runs-per-month", "2")
    assert document["lines"][0]["options"][0]["hours"] == 144


def test_ones_own_prices_are_used(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text('source: contract 7\ndate: "2026-10-01"\nchips: [{generation: v6e, spot: 1}]\n')
    document = as_json(DEV, "--prices", path)
    assert document["lines"][0]["options"][0]["usd"] == 5840
    assert "contract 7" in [origin["source"] for origin in document["prices"]]


def test_a_change_is_the_difference_to_the_file_at_a_commit(repository):
    with_slice(repository / "Pulumi.dev.yaml", count=2)
    document = as_json("Pulumi.dev.yaml", "--against", "before")
    [change] = document["against"]["changes"]
    assert change["name"] == "slice chat"
    assert change["after"]["usd"]["most"] - change["before"]["usd"]["most"] == 7884
    result = cost("Pulumi.dev.yaml", "--against", "before")
    assert "against before:Pulumi.dev.yaml:" in result.stdout
    assert "+7,884" in result.stdout


def test_a_new_file_is_compared_with_nothing(repository):
    write(repository / "Pulumi.new.yaml")
    document = as_json("Pulumi.new.yaml", "--against", "before")
    assert document["against"]["usd_per_month"] is None
    assert [change["before"] for change in document["against"]["changes"]] == [None] * 3


def test_a_faulty_older_version_does_not_hide_the_price(repository):
    with_slice(repository / "Pulumi.dev.yaml", topology="3x3")
    git(repository, "commit", "-q", "-a", "-m", "a fault")
    write(repository / "Pulumi.dev.yaml")
    result = cost("Pulumi.dev.yaml", "--against", "HEAD")
    assert result.exit_code == 0
    assert "not compared with HEAD:Pulumi.dev.yaml, which has no price: HEAD:" in result.stdout
    assert "'3x3' is no topology" in result.stdout
    assert as_json("Pulumi.dev.yaml", "--against", "HEAD")["against"]["changes"] == []


def test_a_stack_of_the_name_comes_before_a_commit_even_if_it_is_broken(repository):
    (repository / "Pulumi.yaml").write_text("name: raytpu\n")
    (repository / "Pulumi.before.yaml").write_text("config: [")
    result = cost("dev", "--against", "before")
    assert result.exit_code == 0
    assert "not compared with before, which has no price:" in result.stdout


@pytest.mark.parametrize("name", ["nope", "--help", "-p", "HEAD:Pulumi.dev.yaml"])
@pytest.mark.usefixtures("repository")
def test_neither_stack_nor_commit_is_told_in_one_line(name):
    result = cost("Pulumi.dev.yaml", f"--against={name}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{name}: is neither a stack nor a commit")
    assert result.stderr.count("\n") == 1


def test_a_local_stack_has_no_price():
    result = cost(REPOSITORY / "stacks/Pulumi.local.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("so it has no price; name another stack\n")


def test_faults_are_told_and_nothing_is_priced(tmp_path):
    result = cost(with_slice(tmp_path / "Pulumi.bad.yaml", topology="3x3"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "'3x3' is no topology" in result.stderr
    assert cost("nope.yaml").exit_code == 2


def test_above_the_budget_exits_with_1(tmp_path):
    team = CONFIG["raytpu:team"]
    path = write(tmp_path / "Pulumi.dear.yaml", team=team | {"max_usd_per_month": 9091})
    result = cost(path)
    assert result.exit_code == 1
    assert "above the budget of 9,091" in result.stdout
    path = write(tmp_path / "Pulumi.cheap.yaml", team=team | {"max_usd_per_month": 9092})
    assert cost(path).exit_code == 0


def test_a_budget_is_not_said_to_hold_where_prices_are_unknown(tmp_path):
    team = CONFIG["raytpu:team"] | {"max_usd_per_month": 100_000}
    [chat] = CONFIG["raytpu:slices"]
    unknown = [chat | {"capacity": [{"flex_start": {}}]}]
    path = write(tmp_path / "Pulumi.flex.yaml", team=team, slices=unknown)
    assert "within the budget of 100,000, as far as prices are known" in cost(path).stdout
