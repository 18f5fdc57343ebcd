"""What the language host promises the engine and no `pulumi` command shows by itself."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys

import grpc
import psutil
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

from tests.tools.project import REPOSITORY

PLUGIN = """\
import os, sys
print("port 1234", os.getcwd(), os.environ.get("GIVEN"), sys.argv[1:], flush=True)
print("a warning", file=sys.stderr, flush=True)
sys.exit(7)
"""
LASTING_PLUGIN = """\
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(60)
"""
EXECUTOR = """\
import json, os, sys
seen = {name: os.environ.get(name) for name in ("PULUMI_CONFIG", "PULUMI_CONFIG_SECRET_KEYS")}
with open("seen", "w") as file:
    json.dump({"argv": sys.argv[1:], **seen}, file)
sys.exit(int(sys.argv[-1]))
"""
HOST = REPOSITORY / "tools/pulumi/language_host.py"


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    executor = tmp_path_factory.mktemp("executor") / "executor.py"
    executor.write_text(EXECUTOR)
    given = ["--executor", str(executor), "--parent", str(os.getpid()), "-v=9", "127.0.0.1:1"]
    command = [sys.executable, HOST, *given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        yield host
        host.terminate()
        assert host.wait(10) == 0


@pytest.fixture(scope="module")
def host(process):
    with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
        yield language_pb2_grpc.LanguageRuntimeStub(channel)


def program(folder, text="", **options):
    (folder / "__main__.py").write_text(text)
    info = {"root_directory": str(folder), "program_directory": str(folder), "entry_point": "."}
    struct = struct_pb2.Struct()
    struct.update(options)
    return language_pb2.ProgramInfo(**info, options=struct)


def run_request(folder, exit_code):
    return language_pb2.RunRequest(
        info=program(folder),
        project="sample",
        stack="s",
        pwd=str(folder),
        config={"sample:token": "hidden", "sample:zone": "a"},
        configSecretKeys=["sample:token"],
        monitor_address="127.0.0.1:2",
        organization="organization",
        parallel=16,
        dryRun=True,
        args=[str(exit_code)],
    )


def test_a_program_gets_its_stack_its_config_and_which_of_it_is_secret(host, tmp_path):
    host.Run(run_request(tmp_path, 0), timeout=30)
    seen = json.loads((tmp_path / "seen").read_text())
    assert json.loads(seen["PULUMI_CONFIG"]) == {"sample:token": "hidden", "sample:zone": "a"}
    assert json.loads(seen["PULUMI_CONFIG_SECRET_KEYS"]) == ["sample:token"]
    *options, folder, last = seen["argv"]
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        "--monitor": "127.0.0.1:2",
        "--engine": "127.0.0.1:1",
        "--project": "sample",
        "--root_directory": str(tmp_path),
        "--stack": "s",
        "--organization": "organization",
        "--pwd": str(tmp_path),
        "--parallel": "16",
        "--dry_run": "true",
    }
    assert (folder, last) == (str(tmp_path), "0")


@pytest.mark.parametrize(
    ("exit_code", "bail", "error"),
    [(0, False, ""), (32, True, ""), (3, False, "the program exited with code 3")],
)
def test_only_an_error_that_was_not_shown_is_reported(host, tmp_path, exit_code, bail, error):
    answer = host.Run(run_request(tmp_path, exit_code), timeout=30)
    assert (answer.bail, answer.error) == (bail, error)


def test_a_plugin_is_heard_on_both_streams_and_its_exit_code_comes_last(host, tmp_path):
    request = language_pb2.RunPluginRequest(
        info=program(tmp_path, PLUGIN), pwd=str(tmp_path), args=["x"], env=["GIVEN=a=b"]
    )
    said = list(host.RunPlugin(request, timeout=30))
    stdout = b"".join(part.stdout for part in said).decode()
    assert stdout == f"port 1234 {tmp_path} a=b ['x']\n"
    assert b"".join(part.stderr for part in said) == b"a warning\n"
    assert (said[-1].WhichOneof("output"), said[-1].exitcode) == ("exitcode", 7)


def test_a_plugin_ends_with_its_call_even_if_it_ignores_being_asked(host, tmp_path):
    request = language_pb2.RunPluginRequest(
        info=program(tmp_path, LASTING_PLUGIN), pwd=str(tmp_path)
    )
    call = host.RunPlugin(request, timeout=30)
    plugin = psutil.Process(int(next(call).stdout))
    call.cancel()
    plugin.wait(10)


def test_cancel_ends_what_runs(host, tmp_path):
    text = LASTING_PLUGIN.replace("SIG_IGN", "SIG_DFL")
    request = language_pb2.RunPluginRequest(info=program(tmp_path, text), pwd=str(tmp_path))
    call = host.RunPlugin(request, timeout=30)
    next(call)
    host.Cancel(empty_pb2.Empty(), timeout=30)
    assert list(call)[-1].exitcode == -signal.SIGTERM


def test_providers_are_found_by_their_installed_sdks(host, tmp_path):
    request = language_pb2.GetRequiredPackagesRequest(info=program(tmp_path))
    found = {p.name: p.version for p in host.GetRequiredPackages(request, timeout=30).packages}
    assert found == {
        name: importlib.metadata.version(f"pulumi-{name}") for name in ("gcp", "kubernetes")
    }


def test_dependencies_are_those_that_nothing_else_requires_unless_all_are_asked_for(host, tmp_path):
    def names(*, transitive: bool) -> set[str]:
        request = language_pb2.GetProgramDependenciesRequest(
            info=program(tmp_path), transitiveDependencies=transitive
        )
        answer = host.GetProgramDependencies(request, timeout=30)
        return {dependency.name for dependency in answer.dependencies}

    assert {"raytpu", "grpcio", "pulumi"} <= names(transitive=True)
    assert names(transitive=False) & {"raytpu", "grpcio", "pulumi"} == {"raytpu"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"virtualenv": "nowhere"}, ["no Python environment at", "/nowhere", "python3 -m venv"]),
        ({"toolchain": "uv"}, ["no Python environment at", "/.venv", "uv sync"]),
        ({"toolchain": "poetry"}, ["'poetry' is not supported", "use uv or pip"]),
    ],
)
def test_an_environment_that_is_not_there_is_one_line(host, tmp_path, options, words):
    request = language_pb2.AboutRequest(info=program(tmp_path, **options))
    with pytest.raises(grpc.RpcError) as caught:
        host.About(request, timeout=30)
    details = str(caught.value.details())
    assert "\n" not in details
    assert all(word in details for word in words)


@pytest.mark.parametrize("marker", ["uv.lock", "pyproject.toml"])
def test_uv_keeps_the_environment_beside_the_lock_or_the_project_file(host, tmp_path, marker):
    (tmp_path / marker).touch()
    (tmp_path / ".venv").symlink_to(REPOSITORY / ".venv")
    (tmp_path / "below/program").mkdir(parents=True)
    info = program(tmp_path / "below/program", toolchain="uv")
    about = host.About(language_pb2.AboutRequest(info=info), timeout=30)
    assert about.executable == f"{tmp_path}/.venv/bin/python"
    assert about.version == "{}.{}.{}".format(*sys.version_info[:3])


def test_dependencies_are_installed_from_the_programs_requirements(host, tmp_path):
    (tmp_path / "requirements.txt").write_text("./not-there\n")
    request = language_pb2.InstallDependenciesRequest(info=program(tmp_path))
    said = []
    with pytest.raises(grpc.RpcError, match=r"--requirement requirements.txt` in .* failed with 1"):
        said.extend(host.InstallDependencies(request, timeout=60))


def test_a_host_whose_engine_is_gone_ends():
    starts_a_host_and_dies = f"""
import os, subprocess
command = [{sys.executable!r}, {str(HOST)!r}, "--executor", "x", "--parent", str(os.getpid()), "x"]
print(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)
"""
    engine = [sys.executable, "-c", starts_a_host_and_dies]
    done = subprocess.run(engine, capture_output=True, text=True, timeout=20, check=True)
    psutil.Process(int(done.stdout)).wait(20)
