"""Fetches, compiles and links Go programs, and says in one line why if it cannot."""

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tools.go.targets import Target

OLDEST_GO = (1, 21)
"""The first that fetches by itself the newer Go that go.mod asks for."""
LIMIT_S = 3600
UNREACHABLE = re.compile(
    r"dial tcp|no such host|i/o timeout|connection re|TLS handshake|proxyconnect|network is "
    r"unreachable|GOPROXY=off|unexpected EOF|\b50\d\b|context deadline exceeded"
)

console = Console(stderr=True, highlight=False)


class BuildError(Exception):
    """A program cannot be had. One line that ends with the way out."""


@dataclass(frozen=True)
class Compiler:
    """Go, in the folder `source` that holds a target's go.mod."""

    source: Path
    target: Target

    def check(self, programs: Sequence[str]) -> None:
        """Raises BuildError if there is no Go, none that can build this, or too little disk."""
        wanted = ".".join(str(part) for part in OLDEST_GO)
        way_out = (
            f"{self.target.way_out}, or install Go >= {wanted} (https://go.dev/dl); then try again"
        )
        if shutil.which("go") is None:
            names = ", ".join(f"`{program}`" for program in programs)
            raise BuildError(f"there is no {names} and no `go` on PATH; {way_out}")
        found = re.search(r"go(\d+)\.(\d+)", self.go("version"))
        if not found or (int(found[1]), int(found[2])) < OLDEST_GO:
            version = found[0] if found else "?"
            raise BuildError(f"Go {version} is too old to build {self.target.title}; {way_out}")
        self._check_disk()

    def _check_disk(self) -> None:
        """Of a first build; a later one finds the caches filled."""
        needed_gib = self.target.needed_gib
        for variable in ("GOMODCACHE", "GOCACHE"):
            cache = Path(self.go("env", variable))
            if cache.is_dir():
                continue
            there = next(parent for parent in cache.parents if parent.is_dir())
            if (free_gib := shutil.disk_usage(there).free / 2**30) < needed_gib:
                raise BuildError(
                    f"{there}: {free_gib:.1f} GiB free, and building {self.target.title} takes "
                    f"{needed_gib:g} GiB; free some, set {variable} to another disk, or "
                    f"{self.target.way_out}"
                )

    def go(self, *arguments: str) -> str:
        """What a `go` command prints. Raises BuildError."""
        try:
            done = subprocess.run(
                ["go", *arguments],
                cwd=self.source,
                env=_environ(),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"`go {arguments[0]}` took over {LIMIT_S} s; try again") from None
        if done.returncode:
            raise self._failure(f"go {' '.join(arguments)}", done.stderr)
        return done.stdout.strip()

    def module(self, name: str) -> Path:
        """The folder in which Go keeps a module's files."""
        return Path(self.go("list", "-m", "-f", "{{.Dir}}", name))

    def build(self, programs: Sequence[str], into: Path) -> None:
        """Makes the programs named, in the folder `into`. Raises BuildError."""
        target = self.target
        console.print(f"Fetching Go modules of {target.title} ({target.modules_gib} GiB at first)")
        packages = [target.programs[program] for program in programs]
        count = len(self.go("list", "-deps", *packages).splitlines())
        console.print(
            f"Building {target.title}: about {target.minutes} minutes on 2 cores at first"
        )
        flags = ["-s", "-w"]  # no tables for debuggers: a third of the size
        for variable, module in target.stamps.items():
            version = self.go("list", "-m", "-f", "{{.Version}}", module)
            flags += ["-X", f"{variable}={version}"]
        command = ["go", "build", "-v", "-ldflags", " ".join(flags), "-o", f"{into}", *packages]
        self._compile(command, count)
        for program, package in zip(programs, packages, strict=True):
            (into / _default_name(package)).rename(into / program)

    def _compile(self, command: Sequence[str], count: int) -> None:
        """Runs `go build -v`, with a bar that moves for each package it names."""
        columns = (TextColumn("packages"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        said: list[str] = []
        with (
            Progress(*columns, console=console, transient=True) as progress,
            subprocess.Popen(
                command, cwd=self.source, env=_environ(), stderr=subprocess.PIPE, text=True
            ) as build,
        ):
            limit = threading.Timer(LIMIT_S, build.terminate)
            limit.start()
            bar = progress.add_task("", total=count)
            try:
                for line in build.stderr or ():
                    said.append(line)
                    progress.advance(bar)
            except KeyboardInterrupt:
                build.terminate()
                raise
            finally:
                limit.cancel()
        if build.returncode == -signal.SIGTERM:
            raise BuildError(f"`go build` took over {LIMIT_S} s; try again: it resumes")
        if build.returncode:
            raise self._failure("go build", "".join(said))

    def _failure(self, command: str, stderr: str) -> BuildError:
        last, way_out = last_line(stderr), self.target.way_out
        if "no space left on device" in stderr:
            return BuildError(
                f"the disk is full: {last}; free {self.target.needed_gib:g} GiB, or {way_out}"
            )
        if UNREACHABLE.search(stderr):
            proxy = self.go("env", "GOPROXY")
            return BuildError(
                f"the Go module proxy ({proxy}) could not be reached: {last}; connect to the "
                f"network, set GOPROXY, or {way_out}"
            )
        return BuildError(f"`{command}` failed: {last}; {way_out}, or mend this and try again")


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1].strip()


def _environ() -> dict[str, str]:
    return {**os.environ, "GOWORK": "off"}


def _default_name(package: str) -> str:
    """The file that `go build` makes of a package: its last part that is no major version."""
    return re.sub(r"/v\d+$", "", package).rpartition("/")[2]
