"""The real engine with our language host: what a user does with a stack works."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.tools.project import PulumiProject

PROJECT = """\
name: sample
runtime: {name: python, options: {toolchain: uv}}
main: program
stackConfigDir: stacks
"""
PROGRAM = """\
import sys
import pulumi
from files import File

config = pulumi.Config()
mode = config.get("mode")
if mode == "refuse":
    raise pulumi.RunError("sample:mode: not this; use another")
if mode == "crash":
    raise ValueError("a fault of the program")
token = config.require_secret("token")
for name in ("one", "two"):
    File(name, path=f"{config.require('folder')}/{name}", text=token)
if mode in ("fail", "wait"):
    File("three", path=f"{config.require('folder')}/three", text=token, mode=mode)
pulumi.export("token", token)
pulumi.export("python", sys.executable)
"""
PROVIDER = """\
from pulumi.dynamic import CreateResult, ReadResult, Resource, ResourceProvider


class Provider(ResourceProvider):
    def create(self, props):
        import os, sys, time
        from pathlib import Path

        path = Path(props["path"])
        if props.get("mode") == "fail":
            sys.tracebacklimit = 0
            raise RuntimeError("no such thing; take another") from None
        if props.get("mode") == "wait":
            path.with_suffix(".begun").touch()
            interrupt = Path(os.environ["RAYTPU_INTERRUPT_FILE"])
            while not interrupt.exists():
                time.sleep(0.05)
            sys.tracebacklimit = 0
            raise RuntimeError("interrupted; run it again") from None
        path.write_text(props["text"])
        return CreateResult(str(path), {**props, "python": sys.executable})

    def read(self, id_, props):
        from pathlib import Path

        there = Path(id_).exists()
        return ReadResult(id_ if there else "", props if there else {})

    def delete(self, id_, props):
        from pathlib import Path

        Path(id_).unlink(missing_ok=True)


class File(Resource):
    def __init__(self, name, *, path, text, mode=""):
        super().__init__(Provider(), name, {"path": path, "text": text, "mode": mode})
"""
PACK = """\
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy


def check(args, report):
    if args.props.get("path", "").endswith("two"):
        report("a second file is one too many")


PolicyPack("pack", policies=[ResourceValidationPolicy(
    name="one-file", description="One file.", validate=check,
    enforcement_level=EnforcementLevel.MANDATORY,
)])
"""
SECRET = "correct-horse"  # noqa: S105 - of a stack that lives as long as a test


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    made = PulumiProject.at(
        root,
        {
            "Pulumi.yaml": PROJECT,
            "program/__main__.py": PROGRAM,
            "program/files.py": PROVIDER,
            "pack/PulumiPolicy.yaml": "runtime: {name: python, options: {toolchain: uv}}\n",
            "pack/__main__.py": PACK,
            "pyproject.toml": "",
            "stacks/.keep": "",
            "path/python": "#!/bin/sh\nexit 99\n",
            "path/python3": "#!/bin/sh\nexit 99\n",
        },
    )
    for name in ("python", "python3"):
        (root / "path" / name).chmod(0o755)
    made.environ["PATH"] = f"{root}/path:{made.environ['PATH']}"
    made.ok("pulumi", "stack", "select", "--create", "s")
    made.ok("pulumi", "config", "set", "--secret", "token", SECRET)
    (root / "made").mkdir()
    made.ok("pulumi", "config", "set", "folder", f"{root}/made")
    return made


@pytest.fixture(scope="module")
def deployed(project):
    """The stack with its two files made; each test leaves it so."""
    done = up(project)
    assert done.returncode == 0, done.stdout
    return project


def up_command(mode: str) -> list[str]:
    flags = ["--yes", "--skip-preview", "--non-interactive", "--stack", "s"]
    return ["pulumi", "up", *flags, "--config", f"mode={mode}"]


def up(project: PulumiProject, mode: str = "ok", **environ: str) -> Any:
    return project.run(*up_command(mode), **environ)


def preview(project: PulumiProject, *flags: str, **environ: str) -> Any:
    command = ("pulumi", "preview", "--non-interactive", "--stack", "s", "--config", "mode=ok")
    return project.run(*command, *flags, **environ)


def outputs(project: PulumiProject) -> dict[str, str]:
    said = project.ok("pulumi", "stack", "output", "--json", "--show-secrets", "--stack", "s")
    return json.loads(said)


def state(project: PulumiProject) -> str:
    return (project.root / ".raytpu/state/.pulumi/stacks/sample/s.json").read_text()


def made(project: PulumiProject) -> dict[str, str]:
    return {file.name: file.read_text() for file in (project.root / "made").glob("*")}


def locks(project: PulumiProject) -> list[Path]:
    return list((project.root / ".raytpu/state/.pulumi/locks").rglob("*.json"))


@pytest.fixture
def waiting(deployed, eventually):
    """An `up` that is in the middle of making a third file, for as long as it is left alone."""
    begun = deployed.root / "made/three.begun"
    with deployed.start(*up_command("wait")) as process:
        eventually(begun.exists)
        yield process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=30)
    begun.unlink()


def heal(project: PulumiProject, *flags: str) -> str:
    return project.ok("python", "tools/pulumi/heal.py", "s", *flags)


def test_resources_are_made_and_a_second_up_changes_nothing(deployed):
    assert made(deployed) == {"one": SECRET, "two": SECRET}
    assert re.search(r"\b3 unchanged", up(deployed).stdout)


def test_program_and_provider_run_on_the_projects_python_though_path_has_another(deployed):
    own = f"{deployed.root}/.venv/bin/python"
    assert outputs(deployed)["python"] == own
    assert f'"python":"{own}"' in state(deployed)


def test_a_refresh_sees_what_is_gone_and_an_up_makes_it_again(deployed):
    (deployed.root / "made/one").unlink()
    deployed.ok("pulumi", "refresh", "--yes", "--non-interactive", "--stack", "s")
    assert re.search(r"\b1 created", up(deployed).stdout)
    assert made(deployed) == {"one": SECRET, "two": SECRET}


def test_a_secret_arrives_in_the_clear_and_is_kept_encrypted(deployed):
    assert outputs(deployed)["token"] == SECRET
    assert SECRET not in state(deployed)
    assert SECRET not in (deployed.root / "stacks/Pulumi.s.yaml").read_text()


def test_a_fault_of_the_program_fails_with_its_traceback(deployed):
    done = up(deployed, "crash")
    assert done.returncode != 0
    assert "ValueError: a fault of the program" in done.stdout
    assert "pulumi-language-python-exec" not in done.stdout


def test_a_run_error_is_its_line_without_a_traceback(deployed):
    done = up(deployed, "refuse")
    assert done.returncode != 0
    assert "error: sample:mode: not this; use another\n" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_provider_can_fail_with_one_line(deployed):
    done = up(deployed, "fail")
    assert done.returncode != 0
    assert "error: RuntimeError: no such thing; take another\n" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_missing_environment_is_one_line_with_the_way_out(deployed):
    project_file = deployed.root / "Pulumi.yaml"
    project_file.write_text(PROJECT.replace("toolchain: uv", "virtualenv: nowhere"))
    done = preview(deployed)
    project_file.write_text(PROJECT)
    assert done.returncode != 0
    assert f"no Python environment at {deployed.root}/nowhere; make it with `" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_policy_pack_can_refuse(deployed):
    done = preview(deployed, "--policy-pack", "pack")
    assert done.returncode != 0
    assert "a second file is one too many" in done.stdout


def test_where_no_stack_was_ever_made_there_is_nothing_to_heal(deployed):
    assert deployed.ok("python", "tools/pulumi/heal.py", "new", "--forget-pending") == ""


def test_an_update_at_work_is_left_alone_and_an_interrupt_ends_it_in_order(waiting, deployed):
    held, at_work = locks(deployed), deployed.processes()
    assert heal(deployed) == ""
    assert (locks(deployed), deployed.processes()) == (held, at_work)
    assert len(held) == 1
    os.killpg(waiting.pid, signal.SIGINT)
    said, _ = waiting.communicate(timeout=30)
    assert waiting.returncode == 1, said
    assert "RuntimeError: interrupted; run it again" in said
    assert "Traceback" not in said
    assert (locks(deployed), deployed.processes()) == ([], [])
    assert "pending_operations" not in state(deployed)


def test_a_killed_cli_takes_its_plugins_with_it_and_does_not_block_the_next_up(waiting, deployed):
    (cli,) = [p for p in psutil.Process(waiting.pid).children() if p.name() == "pulumi"]
    cli.kill()
    waiting.communicate(timeout=30)
    assert waiting.returncode == 128 + signal.SIGKILL
    assert deployed.processes() == []
    heal(deployed)
    done = up(deployed)
    assert done.returncode == 0, done.stdout
    assert "pending operations" in done.stdout


def test_what_a_kill_of_everything_leaves_is_healed_and_the_next_up_goes_through(waiting, deployed):
    os.killpg(waiting.pid, signal.SIGKILL)
    waiting.communicate(timeout=30)
    assert "locked" in up(deployed).stdout
    assert "was killed" in heal(deployed, "--forget-pending")
    assert (locks(deployed), deployed.processes()) == ([], [])
    done = up(deployed)
    assert done.returncode == 0, done.stdout
    assert "pending operations" not in done.stdout


def test_a_lock_of_another_machine_stays(deployed):
    (folder,) = (deployed.root / ".raytpu/state/.pulumi/locks").rglob("s")
    lock = folder / "other.json"
    lock.write_text('{"pid": 1, "hostname": "elsewhere", "timestamp": "2026-01-01T00:00:00Z"}')
    heal(deployed)
    assert lock.exists()
    lock.unlink()


def test_a_destroy_removes_everything(deployed):
    deployed.ok("pulumi", "destroy", "--yes", "--non-interactive", "--stack", "s")
    assert made(deployed) == {}
    assert '"resources"' not in state(deployed)
    assert deployed.processes() == []
