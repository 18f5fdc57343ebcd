"""A token goes from the stack file to Secret Manager, and is in clear nowhere else."""

import json

import pytest

from tests.gke.journey import LIMIT_S, TOKEN

pytestmark = pytest.mark.timeout(LIMIT_S)
dev = pytest.mark.parametrize("journey", ["dev"], indirect=True)


@dev
def test_the_token_reaches_secret_manager(journey):
    [version] = [m for m in journey.google.values() if m.type.endswith(":SecretVersion")]
    assert version.args["secretData"] == TOKEN


@dev
def test_the_token_is_in_no_manifest(journey):
    assert TOKEN not in json.dumps(journey.kubernetes)


@dev
def test_the_token_is_in_no_file_of_the_project(journey):
    """The state and its backups among them, and the stack file."""
    files = [path for path in journey.stack.root.rglob("*") if path.is_file()]
    own = [path for path in files if not path.is_relative_to(journey.stack.root / "home")]
    assert any(path.is_relative_to(journey.stack.root / ".raytpu/state") for path in own)
    assert not [path for path in own if TOKEN in path.read_text(errors="replace")]


@dev
def test_the_token_is_in_nothing_the_engine_says(journey):
    said = [journey.first, journey.up, journey.again, journey.destroyed]
    assert not [done for done in said if TOKEN in done.output]
    assert TOKEN not in journey.state
