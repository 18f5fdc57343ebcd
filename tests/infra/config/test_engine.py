"""A stack file means to `raytpu check` what it means to Pulumi's real engine."""

import json
import subprocess
import sys

import pytest
import yaml

from infra.config import ServeSpec, load
from infra.config.stackfile import read
from infra.errors import ConfigError
from tests.infra.config.stack import SOUND, changed
from tests.infra.config.test_stackfile import SCALARS
from tests.tools.project import REPOSITORY, PulumiProject

PROJECT = "name: raytpu\nruntime: {name: python, options: {toolchain: uv}}\nmain: infra\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    build = [sys.executable, "-m", "tools.go.build", "pulumi"]
    subprocess.run(build, cwd=REPOSITORY, check=True)
    project = PulumiProject.at(tmp_path_factory.mktemp("project"), {"Pulumi.yaml": PROJECT})
    (project.root / "infra").symlink_to(REPOSITORY / "infra")
    project.ok("pulumi", "stack", "init", "some")
    return project


def write(project, stack):
    path = project.root / "Pulumi.some.yaml"
    values = {f"raytpu:{key}": value for key, value in stack.items()}
    path.write_text(yaml.safe_dump({"config": values}))
    return path


def engine_config(project):
    shown = project.ok("pulumi", "config", "--json", "--show-secrets", "--stack", "some")
    config = json.loads(shown[shown.index("{") :])
    secret = [key for key, entry in config.items() if entry["secret"]]
    return {key: entry["value"] for key, entry in config.items()}, secret


def test_every_scalar_means_the_same_to_the_engine(project):
    path = project.root / "Pulumi.some.yaml"
    path.write_text("config:\n  raytpu:slices:\n" + "".join(f"    - {s}\n" for s in SCALARS))
    values, _ = engine_config(project)
    assert json.loads(values["raytpu:slices"]) == json.loads(read(path)["raytpu:slices"])
    assert json.loads(values["raytpu:slices"]) == list(SCALARS.values())


def test_the_way_out_of_a_key_in_clear_text_works(project):
    path = write(project, changed(workloads__2__api_key="sk-clear"))
    with pytest.raises(ConfigError) as error:
        load(read(path), stack="some", encrypted=True)
    command = str(error.value).partition("encrypt it: ")[2].replace("'", "").split()
    project.ok(*command, "sk-sealed", "--stack", "some")
    assert "sk-sealed" not in path.read_text()
    load(read(path), stack="some", encrypted=True)
    values, secret = engine_config(project)
    server = load(values, stack="some", secret_keys=secret).workload("chat")
    assert isinstance(server, ServeSpec)
    assert server.api_key is not None
    assert server.api_key.get_secret_value() == "sk-sealed"


def test_pulumi_reports_the_faults_that_check_reports_and_no_traceback(project):
    stack = changed(slices__0__topology="5x5", workloads__1__steps=3, workloads__2__slice="caht")
    with pytest.raises(ConfigError) as error:
        load(read(write(project, stack)), stack="some", encrypted=True)
    done = project.run("pulumi", "preview", "--stack", "some", "--non-interactive")
    assert done.returncode != 0
    assert "Traceback" not in done.stdout
    said = [line.strip() for line in done.stdout.splitlines()]
    for line in str(error.value).splitlines():
        assert any(line in one for one in said), done.stdout


def test_a_sound_stack_is_read_alike(project):
    path = write(project, SOUND)
    values, secret = engine_config(project)
    assert load(values, stack="some", secret_keys=secret) == load(
        read(path), stack="some", encrypted=True
    )
