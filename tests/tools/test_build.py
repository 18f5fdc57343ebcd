"""The Pulumi CLI is the user's own or is built once, and every reason why not is one line."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tools.project import REPOSITORY

BUILT = ["key", "pulumi", "pulumi-language-python", "pulumi-language-python-exec"]
FAKE_GO = """\
#!/bin/sh
# Answers what build.py asks of Go, and writes down that it was asked.
echo "$@" >> "$LOG"
case "$*" in
version) echo "go version ${GO_VERSION:-go1.26.0} linux/amd64" ;;
"env GOMODCACHE" | "env GOCACHE") echo "$CACHE" ;;
"env GOPROXY") echo https://modules.example,direct ;;
"list -deps "*) [ -z "$LIST_ERROR" ] || { echo "$LIST_ERROR" >&2; exit 1; }; echo fmt ;;
"list -m "*.Version*) echo v3.274.1 ;;
"list -m "*.Dir*) echo "$SDK" ;;
"build "*)
    while [ "$1" != -o ]; do shift; done
    echo half > "$2/pulumi"
    [ -z "$HANG" ] || { touch "$HANG"; exec sleep 30; }
    [ -z "$BUILD_ERROR" ] || { echo "$BUILD_ERROR" >&2; exit 1; }
    echo whole > "$2/pulumi" ;;
esac
"""


def program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


@dataclass(frozen=True)
class Checkout:
    """A copy of tools/ to build in, on a machine whose PATH holds only what the test puts there."""

    root: Path
    environ: dict[str, str]

    @property
    def command(self):
        return [sys.executable, str(self.root / "tools/pulumi/build.py")]

    def build(self, **environ: str) -> "subprocess.CompletedProcess[str]":
        env = {**self.environ, **environ}
        return subprocess.run(
            self.command, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    def built(self) -> list[str]:
        folder = self.root / ".tools/pulumi/bin"
        return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []

    def log(self) -> str:
        log = Path(self.environ["LOG"])
        return log.read_text() if log.is_file() else ""


@pytest.fixture
def checkout(tmp_path):
    shutil.copytree(REPOSITORY / "tools", tmp_path / "checkout/tools")
    sdk, cache = tmp_path / "sdk", tmp_path / "cache"
    program(sdk / "python/cmd/pulumi-language-python-exec", "")
    program(sdk / "python/dist/pulumi-resource-pulumi-python", "")
    cache.mkdir()
    return Checkout(
        tmp_path / "checkout",
        {
            # Shells and coreutils for the fake Go, and neither a Go nor a Pulumi.
            "PATH": f"{tmp_path}/bin:{tmp_path}/system",
            "HOME": str(tmp_path),
            "SDK": str(sdk),
            "CACHE": str(cache),
            "LOG": str(tmp_path / "log"),
        },
    )


@pytest.fixture
def system(tmp_path):
    """/bin without the programs in question."""
    (tmp_path / "system").mkdir()
    for name in ("sh", "touch", "sleep"):
        (tmp_path / "system" / name).symlink_to(str(shutil.which(name)))


@pytest.fixture
def go(tmp_path, system):  # noqa: ARG001 - a fixture that another one needs
    program(tmp_path / "bin/go", FAKE_GO)


def says_in_one_line(done: "subprocess.CompletedProcess[str]", *words: str) -> bool:
    """One line starts with `pulumi: ` and holds every word; nothing is a traceback."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("pulumi: ")]
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return len(lines) == 1 and all(word in lines[0] for word in words)


def test_neither_pulumi_nor_go_names_both_ways_out(checkout):
    done = checkout.build()
    assert says_in_one_line(done, "no `pulumi` and no `go`", "pulumi.com/docs/install", "go.dev/dl")


@pytest.mark.usefixtures("go")
def test_a_go_that_cannot_fetch_a_newer_one_is_too_old(checkout):
    done = checkout.build(GO_VERSION="go1.19.8")
    assert says_in_one_line(done, "go1.19", "too old", "Go >= 1.21")


@pytest.mark.usefixtures("go")
def test_a_module_proxy_out_of_reach_is_named(checkout):
    refused = (
        'go: github.com/pulumi/pulumi/sdk/v3@v3.274.1: Get "https://modules.example/x.zip": dial '
        "tcp: lookup modules.example on 127.0.0.11:53: no such host"
    )
    done = checkout.build(LIST_ERROR=refused)
    assert says_in_one_line(done, "module proxy", "https://modules.example", "no such host")
    assert checkout.built() == []


@pytest.mark.usefixtures("go")
def test_a_full_disk_is_named_and_leaves_nothing(checkout):
    done = checkout.build(BUILD_ERROR="write /tmp/go-link/a.out: no space left on device")
    assert says_in_one_line(done, "disk is full", "free")
    assert checkout.built() == []


@pytest.mark.usefixtures("go")
def test_an_error_of_the_compiler_is_passed_on(checkout):
    done = checkout.build(BUILD_ERROR="main.go:1: undefined: x")
    assert says_in_one_line(done, "go build", "undefined: x")


@pytest.mark.usefixtures("go")
def test_a_build_is_complete_and_is_done_once(checkout):
    assert checkout.build().returncode == 0
    assert checkout.built() == [*BUILT, "pulumi-resource-pulumi-python"]
    assert (checkout.root / ".tools/pulumi/bin/pulumi").read_text() == "whole\n"
    assert all(
        os.access(checkout.root / ".tools/pulumi/bin" / name, os.X_OK)
        for name in checkout.built()
        if name not in {"key", "pulumi"}
    )
    asked = checkout.log()
    assert checkout.build().returncode == 0
    assert checkout.log() == asked


@pytest.mark.usefixtures("go")
def test_another_version_in_go_mod_is_built_anew(checkout):
    checkout.build()
    asked = checkout.log()
    with (checkout.root / "tools/pulumi/go.mod").open("a") as module:
        module.write("// another version\n")
    assert checkout.build().returncode == 0
    assert checkout.log() == asked * 2


@pytest.mark.usefixtures("go")
def test_an_interrupted_build_leaves_nothing_that_counts_as_built(checkout, tmp_path, eventually):
    hang = tmp_path / "hang"
    with subprocess.Popen(
        checkout.command,
        env={**checkout.environ, "HANG": str(hang)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as build:
        eventually(hang.exists)
        os.killpg(build.pid, signal.SIGINT)
        _, said = build.communicate(timeout=30)
    assert (build.returncode, "Traceback" in said) == (130, False)
    assert checkout.built() == []
    assert checkout.build().returncode == 0
    assert (checkout.root / ".tools/pulumi/bin/pulumi").read_text() == "whole\n"


@pytest.mark.usefixtures("system")
def test_an_installed_cli_is_used_and_nothing_is_built(checkout, tmp_path):
    program(tmp_path / "bin/pulumi", "#!/bin/sh\necho v3.250.0\n")
    assert checkout.build().returncode == 0
    assert checkout.built() == []


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\necho v3.99.0\n", ["3.99.0", "older than 3.220"]),
        ("#!/bin/sh\necho v2.250.0\n", ["2.250.0", "older than 3.220"]),
        ("#!/bin/sh\necho broken >&2; exit 1\n", ["failed", "broken"]),
        ("#!/nowhere/sh\n", ["does not run"]),
    ],
)
def test_an_installed_cli_that_will_not_do_is_named(checkout, tmp_path, text, words):
    program(tmp_path / "bin/pulumi", text)
    assert says_in_one_line(checkout.build(), "bin/pulumi", "off PATH", *words)
