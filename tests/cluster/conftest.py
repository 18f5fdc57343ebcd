"""A control plane for a session, and a cluster whose pods run."""

import subprocess
import sys

import pytest

from tests.tools.project import REPOSITORY
from tools.cluster import operator
from tools.cluster.control_plane import ControlPlane

NO_NETWORK = "10.245.0.0/24"
"""Of services that no pod asks: instances with pods have 10.245.1.0/24 and so on."""


@pytest.fixture(scope="session")
def programs():
    """All that a cluster is made of is there (quick if it was built)."""
    build = [sys.executable, "-m", "tools.go.build", "pulumi", "cluster", "provider"]
    subprocess.run(build, cwd=REPOSITORY, check=True)


@pytest.fixture(scope="session")
def control_plane(programs, tmp_path_factory):  # noqa: ARG001 - built before it starts
    """The API server and its controllers with GKE's resource definitions, and no pods."""
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(folder, NO_NETWORK) as control_plane:
        for definition in operator.definitions():
            operator.create(control_plane.api, definition)
        yield control_plane
