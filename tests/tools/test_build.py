"""Programs are the user's own or are built once, and every reason why not is one line."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tools.project import REPOSITORY

PROVIDER = "pulumi-resource-kubernetes"
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
"list -m "*.Dir*) echo "$MODULE" ;;
"build "*)
    while [ "$1" != -o ]; do shift; done
    into=$2; shift 2
    for package; do
        package=${package%/v3}; program=$into/${package##*/}
        echo half > "$program"
        [ -z "$HANG" ] || { touch "$HANG"; exec sleep 30; }
        [ -z "$BUILD_ERROR" ] || { echo "$BUILD_ERROR" >&2; exit 1; }
        echo whole > "$program"
    done ;;
esac
"""


def program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


class Built(NamedTuple):
    """How a build ended, and what it said."""

    code: int
    said: str


@dataclass(frozen=True)
class Checkout:
    """A copy of tools/ to build in, on a machine whose PATH holds only what the test puts there."""

    root: Path
    environ: dict[str, str]

    def start(self, *targets: str, **environ: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "tools.go.build", *targets],
            cwd=self.root,
            env={**self.environ, **environ},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def build(self, *targets: str, **environ: str) -> Built:
        with self.start(*(targets or ("pulumi",)), **environ) as process:
            _, said = process.communicate(timeout=60)
        return Built(process.returncode, said)

    def built(self, target: str = "pulumi") -> list[str]:
        folder = self.root / ".tools/go" / target
        return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []

    def log(self) -> str:
        log = Path(self.environ["LOG"])
        return log.read_text() if log.is_file() else ""


@pytest.fixture
def checkout(tmp_path):
    shutil.copytree(REPOSITORY / "tools", tmp_path / "checkout/tools")
    module, cache = tmp_path / "module", tmp_path / "cache"
    program(module / "python/cmd/pulumi-language-python-exec", "")
    program(module / "python/dist/pulumi-resource-pulumi-python", "")
    program(module / "config/rbac/role.yaml", "kind: ClusterRole")
    (module / "config/rbac").chmod(0o555)
    cache.mkdir()
    return Checkout(
        tmp_path / "checkout",
        {
            # Shells and coreutils for the fake Go, and neither a Go nor a Pulumi.
            "PATH": f"{tmp_path}/bin:{tmp_path}/system",
            "HOME": str(tmp_path),
            "MODULE": str(module),
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


def says_in_one_line(done: Built, *words: str, target: str = "pulumi") -> bool:
    """One line starts with the target and holds every word; nothing is a traceback."""
    lines = [line for line in done.said.splitlines() if line.startswith(f"{target}: ")]
    assert done.code == 1, done.said
    assert "Traceback" not in done.said
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
    assert checkout.build().code == 0
    assert checkout.built() == [*BUILT, "pulumi-resource-pulumi-python"]
    assert (checkout.root / ".tools/go/pulumi/pulumi").read_text() == "whole\n"
    assert all(
        os.access(checkout.root / ".tools/go/pulumi" / name, os.X_OK)
        for name in checkout.built()
        if name not in {"key", "pulumi"}
    )
    asked = checkout.log()
    assert checkout.build().code == 0
    assert checkout.log() == asked


@pytest.mark.usefixtures("go")
def test_another_version_in_go_mod_is_built_anew(checkout):
    checkout.build()
    asked = checkout.log()
    with (checkout.root / "tools/go/pulumi/go.mod").open("a") as module:
        module.write("// another version\n")
    assert checkout.build().code == 0
    assert checkout.log() == asked * 2


@pytest.mark.usefixtures("go")
def test_an_interrupted_build_leaves_nothing_that_counts_as_built(checkout, tmp_path, eventually):
    hang = tmp_path / "hang"
    with checkout.start("pulumi", HANG=str(hang)) as build:
        eventually(hang.exists)
        os.killpg(build.pid, signal.SIGINT)
        _, said = build.communicate(timeout=30)
    assert (build.returncode, "Traceback" in said) == (130, False)
    assert checkout.built() == []
    assert checkout.build().code == 0
    assert (checkout.root / ".tools/go/pulumi/pulumi").read_text() == "whole\n"


@pytest.mark.usefixtures("system")
def test_an_installed_cli_is_used_and_nothing_is_built(checkout, tmp_path):
    program(tmp_path / "bin/pulumi", "#!/bin/sh\necho v3.250.0\n")
    assert checkout.build().code == 0
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


CLUSTER = [
    "coredns",
    "etcd",
    "fake-gcs-server",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kuberay-operator",
]


@pytest.mark.usefixtures("go")
def test_a_clusters_programs_are_built_at_once_under_the_names_people_know(checkout):
    assert checkout.build("cluster").code == 0
    assert checkout.built("cluster") == sorted(["config", "key", *CLUSTER])
    assert checkout.log().count("build -v") == 1
    assert (checkout.root / ".tools/go/cluster/config/rbac/role.yaml").is_file()


@pytest.mark.usefixtures("go")
def test_only_what_path_has_not_is_built_but_the_operator_is_always_ours(checkout, tmp_path):
    for name in CLUSTER:
        program(tmp_path / "bin" / name, "#!/bin/sh\n")
    assert checkout.build("cluster").code == 0
    assert checkout.built("cluster") == ["config", "key", "kuberay-operator"]


@pytest.mark.usefixtures("go")
def test_a_program_that_leaves_path_is_built_then(checkout, tmp_path):
    program(tmp_path / "bin/etcd", "#!/bin/sh\n")
    checkout.build("cluster")
    assert "etcd" not in checkout.built("cluster")
    (tmp_path / "bin/etcd").unlink()
    assert checkout.build("cluster").code == 0
    assert "etcd" in checkout.built("cluster")


@pytest.mark.usefixtures("go")
def test_a_target_alone_is_built(checkout):
    assert checkout.build("provider").code == 0
    assert checkout.built("provider") == ["key", "pulumi-resource-kubernetes"]
    assert checkout.built("pulumi") == checkout.built("cluster") == []


@pytest.mark.usefixtures("go")
def test_a_provider_that_pulumi_has_installed_is_used(checkout, tmp_path):
    plugins = tmp_path / ".pulumi/plugins"
    program(plugins / f"resource-kubernetes-v{version('pulumi-kubernetes')}" / PROVIDER, "")
    assert checkout.build("provider").code == 0
    assert checkout.built("provider") == []


@pytest.mark.usefixtures("go")
def test_a_provider_of_another_version_is_not_used(checkout, tmp_path):
    program(tmp_path / ".pulumi/plugins/resource-kubernetes-v4.0.0" / PROVIDER, "")
    checkout.build("provider")
    assert PROVIDER in checkout.built("provider")


def test_without_go_a_cluster_names_all_it_lacks(checkout):
    done = checkout.build("cluster")
    assert says_in_one_line(done, *(f"`{name}`" for name in CLUSTER), "go.dev/dl", target="cluster")


def test_the_provider_we_build_is_the_version_that_the_sdk_asks_for():
    source = (REPOSITORY / "tools/go/provider/main.go").read_text()
    assert f'const version = "{version("pulumi-kubernetes")}"' in source
