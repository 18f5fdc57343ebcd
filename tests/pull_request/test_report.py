"""The report of a pull request, on a repository with a stack of its own."""

import subprocess
import sys

import pytest
import yaml

from tests.tools.project import REPOSITORY

SCRIPT = REPOSITORY / "tools/pull_request/report.py"
DEV = yaml.safe_load((REPOSITORY / "stacks/Pulumi.dev.yaml").read_text())


def git(folder, *arguments):
    names = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def write(folder, name="dev", **changes):
    """The dev stack with its slice changed."""
    [chat] = DEV["config"]["raytpu:slices"]
    config = DEV["config"] | {"raytpu:slices": [chat | changes]}
    path = folder / f"stacks/Pulumi.{name}.yaml"
    path.write_text(yaml.safe_dump({"config": config}))


@pytest.fixture
def repository(tmp_path):
    """One stack, committed. Its code is this repository's."""
    (tmp_path / "Pulumi.yaml").write_text("name: raytpu\nstackConfigDir: stacks\n")
    (tmp_path / "stacks").mkdir()
    write(tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "a stack")
    return tmp_path


def report(repository, base="HEAD"):
    """Text by section, and the exit code."""
    done = subprocess.run(
        [sys.executable, SCRIPT, base],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stderr == ""
    parts = (part.split("\n", 1) for part in ("\n" + done.stdout).split("\n## ")[1:])
    return {title: text.strip() for title, text in parts}, done.returncode


def test_without_a_change_nothing_differs(repository):
    sections, exit_code = report(repository)
    assert exit_code == 0
    assert list(sections) == ["check", "review", "difference of the renderings"]
    assert "1 stacks without fault" in sections["check"]
    assert "0 mandatory" in sections["review"]
    assert sections["difference of the renderings"].startswith("None: `pulumi up` makes the same")


def test_a_change_is_priced_and_shown_as_what_google_would_get(repository):
    write(repository, count=2)
    sections, exit_code = report(repository)
    assert exit_code == 0
    assert "+7,884" in sections["cost of stacks/Pulumi.dev.yaml"]
    difference = sections["difference of the renderings"].splitlines()
    assert '-      "max_node_count": 1,' in difference
    assert '+      "max_node_count": 2,' in difference
    assert git_worktrees(repository) == 1


def git_worktrees(repository):
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True
    )
    return len(listed.stdout.splitlines())


def test_a_new_stack_is_all_new(repository):
    git(repository, "rm", "-q", "-r", "--cached", "stacks")
    git(repository, "commit", "-q", "-m", "none")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "one")
    sections, exit_code = report(repository, "HEAD~1")
    assert exit_code == 0
    assert "which is not there" in sections["cost of stacks/Pulumi.dev.yaml"]
    assert "cannot be rendered" in sections["difference of the renderings"]


def test_a_fault_is_told_and_fails(repository):
    write(repository, topology="3x3")
    sections, exit_code = report(repository)
    assert exit_code == 1
    assert "'3x3' is no topology of ct6e-standard-8t" in sections["check (exit code 1)"]
    assert "difference of the renderings" not in sections


def test_a_finding_of_the_review_fails(repository):
    stack = yaml.safe_load((repository / "stacks/Pulumi.dev.yaml").read_text())
    stack["config"]["raytpu:environment"] = "prod"  # where images are pinned by digest
    (repository / "stacks/Pulumi.dev.yaml").write_text(yaml.safe_dump(stack))
    sections, exit_code = report(repository)
    assert exit_code == 1
    assert "mandatory: " in sections["review (exit code 1)"]


def test_a_base_that_is_no_commit_is_told(repository):
    sections, exit_code = report(repository, "nope")
    assert exit_code == 0
    assert "nope cannot be checked out" in sections["difference of the renderings"]
