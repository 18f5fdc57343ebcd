import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.gke.journey import STACKS, Journey, travel
from tests.tools.project import REPOSITORY

AT_ONCE = 2
"""Journeys: each runs one engine and one program at a time."""


@pytest.fixture(scope="session", autouse=True)
def pulumi_cli() -> None:
    """There is a CLI: the user's own or a built one (quick when it is there)."""
    build = [sys.executable, "-m", "tools.go.build", "pulumi"]
    subprocess.run(build, cwd=REPOSITORY, check=True)


@pytest.fixture(scope="session")
def journeys(request, tmp_path_factory) -> Iterator[dict[str, Future[Journey]]]:
    """Those that the chosen tests look at, on their way."""
    params = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = {param.params.get("journey") for param in params if param}
    roots = {name: tmp_path_factory.mktemp(name) for name in STACKS if name in wanted}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(travel, name, root) for name, root in roots.items()}


@pytest.fixture
def journey(request, journeys) -> Journey:
    """Of the stack that the test names."""
    return journeys[request.param].result()
