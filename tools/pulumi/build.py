"""Provides a Pulumi CLI: the user's own, or one built from Go modules into .tools/pulumi/bin.

The Go module proxy serves the CLI and, inside the SDK's module, the files that start Python
programs and dynamic providers; language_host.py stands in for the language host. A build is kept
until go.mod, go.sum or this file changes, and appears under its final name only when complete.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from environment import built_cli, installed_cli
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

SOURCE = Path(__file__).parent
CLI = "github.com/pulumi/pulumi/pkg/v3"
SDK = "github.com/pulumi/pulumi/sdk/v3"
SDK_FILES = (
    "python/cmd/pulumi-language-python-exec",
    "python/dist/pulumi-resource-pulumi-python",
)
HOST = """\
#!/bin/sh
# Made by tools/pulumi/build.py: the engine finds its language host by this name.
here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../../.." && pwd -P)
exec "$root/.venv/bin/python" "$root/tools/pulumi/language_host.py" \\
    --executor "$here/pulumi-language-python-exec" --parent "$PPID" "$@"
"""
OLDEST_CLI = (3, 220)
OLDEST_GO = (1, 21)
"""The first that fetches by itself the newer Go that go.mod asks for."""
NEEDED_GIB = 5.0
"""Of the first build: modules 1.6 GiB, compiled packages 1.8 GiB, the CLI 0.1 GiB, and air."""
VERSION_LIMIT_S = 60
BUILD_LIMIT_S = 3600
UNREACHABLE = re.compile(
    r"dial tcp|no such host|i/o timeout|connection re|TLS handshake|proxyconnect|network is "
    r"unreachable|GOPROXY=off|unexpected EOF|\b50\d\b|context deadline exceeded"
)

console = Console(stderr=True, highlight=False)


class BuildError(Exception):
    """No CLI can be had. One line that ends with the way out."""


def check_installed(cli: str) -> str:
    """The version of the user's own CLI. Raises BuildError if it is broken or too old."""
    way_out = "update it, or take it off PATH and `make setup` builds one"
    try:
        done = subprocess.run(
            [cli, "version"], capture_output=True, text=True, timeout=VERSION_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{cli} does not run ({error}); {way_out}") from None
    found = re.search(r"v?(\d+)\.(\d+)\.\d+\S*", done.stdout)
    if done.returncode or not found:
        raise BuildError(f"`{cli} version` failed ({_last_line(done.stderr)}); {way_out}")
    if (int(found[1]), int(found[2])) < OLDEST_CLI:
        wanted = ".".join(str(part) for part in OLDEST_CLI)
        raise BuildError(f"{cli} is Pulumi {found[0]}, older than {wanted}; {way_out}")
    return found[0]


def check_go() -> None:
    """Raises BuildError if there is no Go, or none that can build the CLI."""
    wanted = ".".join(str(part) for part in OLDEST_GO)
    way_out = (
        "install Pulumi (https://www.pulumi.com/docs/install) or Go >= "
        f"{wanted} (https://go.dev/dl), then run `make setup` again"
    )
    if shutil.which("go") is None:
        raise BuildError(f"there is no `pulumi` and no `go` on PATH; {way_out}")
    found = re.search(r"go(\d+)\.(\d+)", _go("version"))
    if not found or (int(found[1]), int(found[2])) < OLDEST_GO:
        raise BuildError(f"Go {found[0] if found else '?'} is too old to build Pulumi; {way_out}")


def check_disk() -> None:
    """Raises BuildError if a first build would not fit; a later one finds the caches filled."""
    for variable in ("GOMODCACHE", "GOCACHE"):
        folder = Path(_go("env", variable))
        if folder.is_dir():
            continue
        there = next(parent for parent in folder.parents if parent.is_dir())
        if (free_gib := shutil.disk_usage(there).free / 2**30) < NEEDED_GIB:
            raise BuildError(
                f"{there}: {free_gib:.1f} GiB free, and building Pulumi takes {NEEDED_GIB:g} GiB; "
                f"free some, set {variable} to another disk, or install Pulumi"
            )


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1].strip()


def _failure(command: str, stderr: str) -> BuildError:
    last = _last_line(stderr)
    if "no space left on device" in stderr:
        return BuildError(f"the disk is full: {last}; free {NEEDED_GIB:g} GiB, or install Pulumi")
    if UNREACHABLE.search(stderr):
        proxy = _go("env", "GOPROXY")
        return BuildError(
            f"the Go module proxy ({proxy}) could not be reached: {last}; connect to the network, "
            "set GOPROXY, or install Pulumi (https://www.pulumi.com/docs/install)"
        )
    return BuildError(f"`{command}` failed: {last}; install Pulumi, or mend this and try again")


def _go_environ() -> dict[str, str]:
    return {**os.environ, "GOWORK": "off"}


def _go(*arguments: str) -> str:
    """What a `go` command in tools/pulumi prints. Raises BuildError."""
    done = subprocess.run(
        ["go", *arguments],
        cwd=SOURCE,
        env=_go_environ(),
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise _failure(f"go {' '.join(arguments)}", done.stderr)
    return done.stdout.strip()


def compile_cli(target: Path) -> None:
    """Fetches, compiles and links `pulumi` into the folder `target`. Raises BuildError."""
    console.print("Fetching Pulumi's Go modules (1.6 GiB the first time)")
    packages = _go("list", "-deps", f"{CLI}/cmd/pulumi").splitlines()
    version = _go("list", "-m", "-f", "{{.Version}}", CLI)
    console.print(f"Building Pulumi {version}: about 5 minutes on 2 cores the first time")
    flags = f"-s -w -X {SDK}/go/common/version.Version={version}"
    command = ["go", "build", "-v", "-ldflags", flags, "-o", str(target), f"{CLI}/cmd/pulumi"]
    columns = (TextColumn("packages"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    said: list[str] = []
    with (
        Progress(*columns, console=console, transient=True) as progress,
        subprocess.Popen(
            command, cwd=SOURCE, env=_go_environ(), stderr=subprocess.PIPE, text=True
        ) as build,
    ):
        limit = threading.Timer(BUILD_LIMIT_S, build.terminate)
        limit.start()
        task = progress.add_task("", total=len(packages))
        try:
            for line in build.stderr or ():
                said.append(line)
                progress.advance(task)
        except KeyboardInterrupt:
            build.terminate()
            raise
        finally:
            limit.cancel()
    if build.returncode == -signal.SIGTERM:
        raise BuildError(f"`go build` took over {BUILD_LIMIT_S} s; try again: it resumes")
    if build.returncode:
        raise _failure("go build", "".join(said))


def fill(target: Path) -> None:
    """Puts the CLI and what it needs beside it into `target`."""
    compile_cli(target)
    sdk = Path(_go("list", "-m", "-f", "{{.Dir}}", SDK))
    for name in SDK_FILES:
        copy = target / Path(name).name
        shutil.copyfile(sdk / name, copy)
        copy.chmod(0o755)
    host = target / "pulumi-language-python"
    host.write_text(HOST)
    host.chmod(0o755)


def key() -> str:
    """Changes when the build would."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", Path(__file__).name):
        digest.update((SOURCE / name).read_bytes())
    return digest.hexdigest()


def is_built(folder: Path) -> bool:
    stamp = folder / "key"
    return stamp.is_file() and stamp.read_text() == key()


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds off other builds of this checkout; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + BUILD_LIMIT_S
    with (folder / "lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise BuildError(
                        f"another build holds {lock.name} for over {BUILD_LIMIT_S} s; end it"
                    ) from None
                time.sleep(1)
        yield


def build(root: Path) -> None:
    """Makes .tools/pulumi/bin of `root` unless it is there. Raises BuildError."""
    final = built_cli(root)
    with only_one(final.parent):
        if is_built(final):
            return
        check_go()
        check_disk()
        partial = final.with_name("bin.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        fill(partial)
        (partial / "key").write_text(key())
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)


def main() -> int:
    root = SOURCE.parents[1]
    try:
        if cli := installed_cli(os.environ, root):
            check_installed(cli)
        else:
            build(root)
    except BuildError as error:
        sys.stderr.write(f"pulumi: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
