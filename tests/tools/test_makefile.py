"""What the Makefile's targets do to a checkout that is set up."""

import shlex
import subprocess

import pytest

from tests.tools.project import REPOSITORY


def test_setting_up_again_keeps_the_environment() -> None:
    """Made anew under a running stack, it would take the modules from its processes."""
    planned = subprocess.run(
        ["make", "--dry-run", "environment"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    [command] = [line for line in planned.stdout.splitlines() if " sync " in line]
    done = subprocess.run(
        [*shlex.split(command), "--dry-run"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Would make no changes" in done.stderr, done.stderr


@pytest.mark.parametrize("target", ["up", "down"])
def test_make_changes_no_stack_that_costs_money(target):
    """Its commands ask nothing and show no preview."""
    planned = subprocess.run(
        ["make", "--dry-run", target, "STACK=prod"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    commands = [line for line in planned.stdout.splitlines() if "prod" in line]
    first = subprocess.run(
        shlex.split(commands[0]), cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert first.returncode == 2
    assert "use `tools/run pulumi up --stack prod`" in first.stderr
