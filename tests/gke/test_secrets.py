"""A secret goes from the stack file to where pods read it, and is in clear nowhere else."""

import json

import pytest

from tests.gke.journey import API_KEY, LIMIT_S, TOKEN

pytestmark = pytest.mark.timeout(LIMIT_S)
dev = pytest.mark.parametrize("journey", ["dev"], indirect=True)
existing = pytest.mark.parametrize("journey", ["existing"], indirect=True)
both = pytest.mark.parametrize(
    ("journey", "secret"), [("dev", TOKEN), ("existing", API_KEY)], indirect=["journey"]
)


@dev
def test_the_token_reaches_secret_manager_and_no_manifest(journey):
    [version] = [m for m in journey.google.values() if m.type.endswith(":SecretVersion")]
    assert version.args["secretData"] == TOKEN
    assert TOKEN not in json.dumps(journey.kubernetes)


@existing
def test_in_a_cluster_of_others_a_key_reaches_one_object(journey):
    holders = [one["kind"] for one in journey.kubernetes if API_KEY in json.dumps(one)]
    assert holders == ["Secret"]


@both
def test_a_secret_is_in_no_file_of_the_project(journey, secret):
    """The state and its backups among them, and the stack file."""
    files = [path for path in journey.stack.root.rglob("*") if path.is_file()]
    own = [path for path in files if not path.is_relative_to(journey.stack.root / "home")]
    assert any(path.is_relative_to(journey.stack.root / ".raytpu/state") for path in own)
    assert not [path for path in own if secret in path.read_text(errors="replace")]


@both
def test_a_secret_is_in_nothing_the_engine_says(journey, secret):
    said = [journey.first, journey.up, journey.again, journey.refreshed, journey.destroyed]
    assert not [done for done in said if secret in done.output]
    assert secret not in journey.state
