import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.tools.project import REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def pulumi_cli() -> None:
    """There is a CLI: the user's own or a built one (quick when it is there)."""
    build = [sys.executable, "-m", "tools.go.build", "pulumi"]
    subprocess.run(build, cwd=REPOSITORY, check=True)


@pytest.fixture
def eventually():
    """Waits until a condition holds, and says which one did not."""

    def wait(condition: Callable[[], object], limit_s: float = 60) -> None:
        deadline_s = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline_s, f"{condition} did not hold within {limit_s} s"
            time.sleep(0.05)

    return wait
