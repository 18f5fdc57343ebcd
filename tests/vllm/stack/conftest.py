import subprocess
import sys

import pytest

from tests.tools.project import REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def pulumi_cli() -> None:
    """There is a CLI: the user's own or a built one (quick when it is there)."""
    build = [sys.executable, "-m", "tools.go.build", "pulumi"]
    subprocess.run(build, cwd=REPOSITORY, check=True)
