"""What the user has chosen for Pulumi stays; only the rest is filled in."""

import os
from pathlib import Path

import pytest

from tools.pulumi.environment import resolve


@pytest.fixture
def root(tmp_path):
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def user(tmp_path):
    """A user who has nothing: no login, no CLI, no variables."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}


def credentials(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "credentials.json").write_text(text)


def own_backend(root):
    return f"file://{root}/.raytpu/state"


def test_with_nothing_chosen_state_is_in_the_project_without_passphrase(root, user):
    resolved = resolve(user, root)
    assert resolved["PULUMI_BACKEND_URL"] == own_backend(root)
    assert resolved["PULUMI_CONFIG_PASSPHRASE"] == ""
    assert resolved["PULUMI_SKIP_UPDATE_CHECK"] == "1"


def test_our_python_and_cli_come_before_the_users_path_and_our_provider_after(root, user):
    assert resolve(user, root)["PATH"].split(os.pathsep) == [
        f"{root}/.venv/bin",
        f"{root}/.tools/go/pulumi",
        "/usr/bin",
        "/bin",
        f"{root}/.tools/go/provider",
    ]


def test_an_installed_cli_is_used_as_it_is(root, user, tmp_path):
    (tmp_path / "bin").mkdir()
    cli = tmp_path / "bin/pulumi"
    cli.write_text("")
    cli.chmod(0o755)
    resolved = resolve({**user, "PATH": f"{tmp_path}/bin:/usr/bin"}, root)
    assert resolved["PATH"] == f"{root}/.venv/bin:{tmp_path}/bin:/usr/bin"
    assert "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION" not in resolved


def test_the_built_cli_does_not_look_for_plugins_in_the_network(root, user):
    assert resolve(user, root)["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "1"


def test_resolving_twice_is_resolving_once(root, user):
    once = resolve(user, root)
    assert resolve(once, root) == once


def test_a_backend_in_the_environment_stays_and_gets_no_passphrase(root, user):
    resolved = resolve({**user, "PULUMI_BACKEND_URL": "gs://bucket"}, root)
    assert resolved["PULUMI_BACKEND_URL"] == "gs://bucket"
    assert "PULUMI_CONFIG_PASSPHRASE" not in resolved


@pytest.mark.parametrize(
    ("where", "text", "chosen"),
    [
        (".pulumi", '{"current": "https://api.pulumi.com"}', True),
        (".pulumi", '{"current": "file:///srv/state", "accessTokens": {}}', True),
        (".pulumi", '{"version": 2, "backend": "keyring", "ciphertext": "AAAA"}', True),
        (".pulumi", "not json", True),
        (".pulumi", '{"accessTokens": {}}', False),  # after `pulumi logout`
        (".pulumi", "{}", False),
        ("elsewhere", '{"current": "https://api.pulumi.com"}', False),
    ],
)
def test_a_login_is_a_choice(root, user, where, text, chosen):
    credentials(Path(user["HOME"]) / where, text)
    assert ("PULUMI_BACKEND_URL" not in resolve(user, root)) is chosen


@pytest.mark.parametrize("variable", ["PULUMI_HOME", "PULUMI_CREDENTIALS_PATH"])
def test_a_login_is_looked_for_where_pulumi_keeps_it(root, user, tmp_path, variable):
    credentials(tmp_path / "elsewhere", '{"current": "https://api.pulumi.com"}')
    resolved = resolve({**user, variable: f"{tmp_path}/elsewhere"}, root)
    assert "PULUMI_BACKEND_URL" not in resolved
    assert resolved[variable] == f"{tmp_path}/elsewhere"


def test_an_access_token_is_a_choice(root, user):
    assert "PULUMI_BACKEND_URL" not in resolve({**user, "PULUMI_ACCESS_TOKEN": "pul-1"}, root)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("name: raytpu\nbackend:\n  url: gs://bucket\n", True), ("name: raytpu\n", False)],
)
def test_a_backend_in_the_project_file_is_a_choice(root, user, text, chosen):
    (root / "Pulumi.yaml").write_text(text)
    assert ("PULUMI_BACKEND_URL" not in resolve(user, root)) is chosen


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"PULUMI_CONFIG_PASSPHRASE": "mine"}, "mine"),
        ({"PULUMI_CONFIG_PASSPHRASE": ""}, ""),
        ({"PULUMI_CONFIG_PASSPHRASE_FILE": "/srv/passphrase"}, None),
    ],
)
def test_a_passphrase_of_the_users_stays(root, user, given, expected):
    assert resolve({**user, **given}, root).get("PULUMI_CONFIG_PASSPHRASE") == expected
