"""What the Makefile's targets do to a checkout that is set up."""

import shlex
import subprocess

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
