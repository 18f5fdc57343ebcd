"""Which Python runs a Pulumi program, and what is installed in it.

`runtime.options.virtualenv` of its Pulumi.yaml; with `toolchain: uv` the environment beside the
nearest uv.lock or pyproject.toml; else the Python this host runs on. Never whatever `python3` comes
first on PATH.
"""

import base64
import importlib.metadata
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import language_pb2, plugin_pb2


class HostError(Exception):
    """What the host cannot do. One line that ends with the way out."""


@dataclass(frozen=True)
class ProgramPython:
    """The Python environment of one program."""

    executable: Path

    def environ(self, environ: dict[str, str]) -> dict[str, str]:
        """`environ` with this Python active, as its `activate` script would leave it."""
        bin_dir = self.executable.parent
        active = {**environ, "PATH": f"{bin_dir}{os.pathsep}{environ.get('PATH', os.defpath)}"}
        active.pop("PYTHONHOME", None)
        if (bin_dir.parent / "pyvenv.cfg").is_file():
            active["VIRTUAL_ENV"] = str(bin_dir.parent)
        return active

    def ask(self, code: str) -> str:
        """What `code` prints on this Python. Raises HostError if it does not run."""
        done = subprocess.run(
            [self.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise HostError(f"{self.executable} does not work: {last}; make the environment again")
        return done.stdout.strip()

    def site_packages(self) -> Path:
        return Path(self.ask("import sysconfig; print(sysconfig.get_path('purelib'))"))


def program_python(info: language_pb2.ProgramInfo) -> ProgramPython:
    """The Python that runs the program (see the module). Raises HostError if it is not there."""
    options = MessageToDict(info.options)
    toolchain = options.get("toolchain", "pip")
    if toolchain not in {"pip", "uv"}:
        raise HostError(f"runtime.options.toolchain {toolchain!r} is not supported; use uv or pip")
    root = Path(info.root_directory)
    if "virtualenv" in options:
        venv, fix = root / options["virtualenv"], f"`python3 -m venv {options['virtualenv']}`"
    elif toolchain == "uv":
        venv, fix = uv_environment(root), "`uv sync`"
    else:
        return ProgramPython(Path(sys.executable))
    if not (venv / "bin/python").is_file():
        raise HostError(f"there is no Python environment at {venv}; make it with {fix}")
    return ProgramPython(venv / "bin/python")


def uv_environment(root: Path) -> Path:
    """Where uv keeps the environment of the project that `root` belongs to."""
    upward = [root, *root.parents]
    markers = itertools.product(("uv.lock", "pyproject.toml"), upward)
    project = next((folder for name, folder in markers if (folder / name).is_file()), root)
    return project / os.environ.get("UV_PROJECT_ENVIRONMENT", ".venv")


def required_packages(site_packages: Path) -> Iterator[plugin_pb2.PackageDependency]:
    """The Pulumi providers whose SDKs are installed: each carries a pulumi-plugin.json."""
    for file in sorted(site_packages.glob("*/pulumi-plugin.json")):
        plugin = json.loads(file.read_text())
        if not plugin.get("resource"):
            continue
        package = plugin_pb2.PackageDependency(
            name=plugin["name"],
            kind="resource",
            version=plugin.get("version", ""),
            server=plugin.get("server", ""),
        )
        if parameters := plugin.get("parameterization"):
            package.parameterization.name = parameters["name"]
            package.parameterization.version = parameters["version"]
            package.parameterization.value = base64.b64decode(parameters["value"])
        yield package


def installed(site_packages: Path, *, transitive: bool) -> list[language_pb2.DependencyInfo]:
    """Distributions by name; without `transitive` only those that no other one requires."""

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    found = {
        normal(distribution.name): distribution
        for distribution in importlib.metadata.distributions(path=[str(site_packages)])
    }
    hidden: set[str] = set()
    if not transitive:
        requirements = itertools.chain.from_iterable(d.requires or () for d in found.values())
        hidden = {normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in requirements}
    return [
        language_pb2.DependencyInfo(name=distribution.name, version=distribution.version)
        for name, distribution in sorted(found.items())
        if name not in hidden
    ]
