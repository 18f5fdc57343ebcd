"""A control plane for a session, and a cluster whose pods run."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.pods import bare, machine  # noqa: F401 - fixtures
from tests.gke.cloud_stack import stack_file
from tests.tools.project import REPOSITORY
from tools.cluster import operator
from tools.cluster.control_plane import ControlPlane
from tools.cluster.instance import Instance

NO_NETWORK = "10.245.0.0/24"
"""Of services that no pod asks: instances with pods have 10.245.1.0/24 and so on."""


@pytest.fixture(scope="session")
def programs():
    """All that a cluster is made of is there (quick if it was built)."""
    build = [sys.executable, "-m", "tools.go.build", "cluster"]
    subprocess.run(build, cwd=REPOSITORY, check=True)


@pytest.fixture(scope="session")
def provider():
    """Pulumi and its real provider for Kubernetes are there."""
    build = [sys.executable, "-m", "tools.go.build", "pulumi", "provider"]
    subprocess.run(build, cwd=REPOSITORY, check=True)


@pytest.fixture(scope="session")
def control_plane(programs, tmp_path_factory) -> Iterator[ControlPlane]:  # noqa: ARG001 - built before it starts
    """The API server and its controllers with GKE's resource definitions, and no pods."""
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(folder, NO_NETWORK) as control_plane:
        operator.install_definitions(control_plane.api)
        yield control_plane


@pytest.fixture(scope="session")
def cluster(programs, tmp_path_factory) -> Iterator[Instance]:  # noqa: ARG001 - built before
    """A cluster with the nodes of stack `existing`, the operator and a bucket: pods run.

    There is one node more, for the second cluster of an upgrade.
    """
    declared = yaml.safe_load(stack_file("existing").read_text())
    declared["config"]["raytpu:workloads"][-1]["upgrade"] = "new_cluster"
    spare = tmp_path_factory.mktemp("spare") / "Pulumi.existing.yaml"
    spare.write_text(yaml.safe_dump(declared))
    instance = Instance(tmp_path_factory.mktemp("cluster"))
    instance.start(str(spare), outlives_us=False)
    yield instance
    instance.stop()
