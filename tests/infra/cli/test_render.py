"""`raytpu render`: what it writes, where, and what it says beside."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner

from infra.cli.app import app
from infra.cli.check import check
from infra.cli.render import render
from tests.infra.config.stack import SOUND
from tests.tools.project import REPOSITORY

DEV = REPOSITORY / "stacks/Pulumi.dev.yaml"
CIPHERTEXT = "v1:Y2lwaGVy:dGV4dA=="


def raytpu(*arguments):
    return CliRunner().invoke(app, ["render", *map(str, arguments)])


def declare(path, **changes):
    """The dev stack with keys of namespace raytpu put in."""
    stack = yaml.safe_load(DEV.read_text())
    stack["config"] |= {f"raytpu:{key}": value for key, value in changes.items()}
    path.write_text(yaml.safe_dump(stack))
    return path


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_objects_are_yaml_and_cloud_resources_are_json(tmp_path):
    assert raytpu(DEV, "--out", tmp_path).exit_code == 0
    [pool] = [
        pool
        for pool in json.loads((tmp_path / "dev/cloud/container.NodePool.json").read_text())
        if pool["name"] == "chat-0"
    ]
    assert pool["node_config"]["machine_type"] == "ct6e-standard-8t"
    service = yaml.safe_load((tmp_path / "dev/kubernetes/rayservice-chat.yaml").read_text())
    [group] = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert (group["replicas"], group["numOfHosts"]) == (1, 1)


def test_stdout_is_one_stream_of_the_same_documents(tmp_path):
    assert raytpu(DEV, "--out", tmp_path).exit_code == 0
    result = raytpu(DEV)
    assert result.exit_code == 0
    streamed = [one for one in yaml.safe_load_all(result.stdout) if one is not None]
    written = [yaml.safe_load(path.read_text()) for path in (tmp_path / "dev").glob("*/*")]
    assert len(streamed) == len(written)
    assert all(document in written for document in streamed)
    assert "# dev/kubernetes/rayservice-chat.yaml\n" in result.stdout


def test_documents_have_paths_of_their_own():
    for path in REPOSITORY.glob("stacks/**/Pulumi.*.yaml"):
        config = check(str(path)).config
        assert config
        if path.stem != "Pulumi.local":
            paths = [document.path for document in render(config)]
            assert len(paths) == len({*paths})


def test_what_google_alone_knows_is_said_beside_the_documents():
    result = raytpu(REPOSITORY / "stacks/Pulumi.prod.yaml")
    assert "{project_number}" in result.stdout
    assert "{project_number} stands for the project's number" in result.stderr


def test_in_a_cluster_of_others_all_is_known():
    result = raytpu(REPOSITORY / "stacks/Pulumi.existing.yaml")
    assert (result.exit_code, result.stderr) == (0, "")


def test_an_older_rendering_goes(tmp_path):
    raytpu(DEV, "--out", tmp_path)
    wanted = files(tmp_path / "dev")
    (tmp_path / "dev/kubernetes/rayservice-gone.yaml").write_text("kind: RayService\n")
    assert raytpu(DEV, "--out", tmp_path).exit_code == 0
    assert files(tmp_path / "dev") == wanted


@pytest.mark.parametrize("name", ["notes.txt", "kubernetes/kept.txt", "other/a.yaml"])
def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path, name):
    (tmp_path / "dev" / name).parent.mkdir(parents=True)
    (tmp_path / "dev" / name).write_text("mine")
    result = raytpu(DEV, "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith("is no part of a rendering; name another folder")
    assert files(tmp_path / "dev") == {name}


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path):
    (tmp_path / "dev").write_text("a file")
    result = raytpu(DEV, "--out", tmp_path)
    assert result.exit_code == 2
    assert str(tmp_path / "dev") in result.stderr.splitlines()[-1]


def test_faults_are_told_as_by_check_and_nothing_is_rendered(tmp_path):
    bad = declare(tmp_path / "Pulumi.bad.yaml", slices=[{"name": "chat"}])
    result = raytpu(DEV, bad, "--out", tmp_path / "out")
    assert result.exit_code == 1
    told = CliRunner().invoke(app, ["check", str(bad)])
    assert result.stderr == told.stdout
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_file_that_cannot_be_read_exits_with_2():
    result = raytpu("nope.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("nope.yaml: ")


def test_a_local_stack_has_nothing_to_render(tmp_path):
    path = tmp_path / "Pulumi.small.yaml"
    config = {f"raytpu:{key}": value for key, value in SOUND.items()}
    path.write_text(yaml.safe_dump({"config": config}))
    result = raytpu(path)
    assert result.exit_code == 1
    assert "'local' makes nothing in a cloud" in result.stderr


def test_secrets_are_not_shown(tmp_path):
    stack = yaml.safe_load((REPOSITORY / "stacks/Pulumi.existing.yaml").read_text())
    [chat] = [one for one in stack["config"]["raytpu:workloads"] if one["name"] == "chat"]
    chat["api_key"] = {"secure": CIPHERTEXT}
    path = tmp_path / "Pulumi.sealed.yaml"
    path.write_text(yaml.safe_dump(stack))
    result = raytpu(path)
    assert result.exit_code == 0, result.stderr
    assert "[secret]" in result.stdout
    assert CIPHERTEXT not in result.output


def test_rendering_needs_no_engine_credentials_or_network(tmp_path):
    """In a process without the variables of any of them, which may call nobody."""
    code = (
        "import sys\n"
        "calls = {'socket.connect', 'socket.getaddrinfo', 'subprocess.Popen', 'os.exec'}\n"
        "sys.addaudithook(lambda event, _: event in calls and sys.exit(event))\n"
        "from infra.cli.app import main\n"
        f"sys.argv = ['raytpu', 'render', {str(DEV)!r}, '--out', {str(tmp_path)!r}]\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.defpath, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert files(tmp_path / "dev")
