import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.local.local_stack import LocalStack, one_chip
from tests.tools.project import REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def pulumi_cli() -> None:
    """There is a CLI: the user's own or a built one (quick when it is there)."""
    build = [sys.executable, "-m", "tools.go.build", "pulumi"]
    subprocess.run(build, cwd=REPOSITORY, check=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """One 1-chip slice and nothing on it; up. Tests change it and leave it up."""
    stack = LocalStack(tmp_path_factory.mktemp("small"), "small")
    stack.declare(slices=[one_chip(count=1)])
    try:
        done = stack.up()
        assert done.code == 0, done.output
        yield stack
    finally:
        stack.destroy()
    assert stack.processes() == []
