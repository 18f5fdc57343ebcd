"""A stack of a test on the real engine, by the real Kubernetes provider, at a real API server."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from infra.config import StackConfig, load
from infra.config.stackfile import read
from tests.gke.cloud_stack import CREDENTIALS, stack_file
from tests.tools.project import REPOSITORY, Done, PulumiProject

LIMIT_S = 300
"""Of one command of Pulumi."""
END_LIMIT_S = 30
WITHOUT_PATIENCE = """
import runpy
from datetime import timedelta

from infra.ray import waits

waits.PROVISIONING = waits.MARGIN = timedelta(seconds={seconds})
runpy.run_module("infra", run_name="__main__")
"""
"""The project's program, with limits that a test can wait for."""


class RealStack:
    """The stack `existing` in a folder of its own: its own program, stack file, state, home."""

    def __init__(
        self,
        root: Path,
        kubeconfig: Path,
        name: str = "existing",
        changes: dict[str, Any] | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        self.root, self.name, self._limit_s = root, name, limit_s
        root.mkdir(exist_ok=True)
        project = PulumiProject.at(root, {}, links=("infra", "workloads"))
        shutil.copy(REPOSITORY / "Pulumi.yaml", root)
        (root / "stacks").mkdir()
        (root / "empty").mkdir()
        kept = {k: v for k, v in project.environ.items() if not k.startswith(CREDENTIALS)}
        own = {"HOME": str(root / "empty"), "KUBECONFIG": str(kubeconfig)}
        self.environ = {**kept, **own}
        shipped = yaml.safe_load(stack_file("existing").read_text())["config"]
        self.declared: dict[str, Any] = {key.partition(":")[2]: v for key, v in shipped.items()}
        self.declare(**(changes or {}))
        self.ok("stack", "init")

    @classmethod
    def apart(cls, root: Path, kubeconfig: Path, name: str) -> "RealStack":
        """One of many in the same cluster: in a namespace of its own."""
        team = {"name": "research", "cost_center": "ml-research", "namespace": name}
        return cls(root, kubeconfig, name, {"environment": name, "team": team})

    @property
    def config(self) -> StackConfig:
        return load(read(self.file), stack=self.name, encrypted=True)

    @property
    def file(self) -> Path:
        return self.root / f"stacks/Pulumi.{self.name}.yaml"

    def declare(self, **changes: Any) -> None:
        """Writes the stack file with keys of namespace raytpu put in place of its own."""
        self.declared |= changes
        config = {f"raytpu:{key}": value for key, value in self.declared.items()}
        self.file.write_text(yaml.safe_dump({"config": config}))

    def give_up_after(self, seconds: int) -> None:
        """Waits for seconds where a cloud would be given half an hour."""
        program = self.root / "impatient"
        program.mkdir()
        (program / "__main__.py").write_text(WITHOUT_PATIENCE.format(seconds=seconds))
        settings = yaml.safe_load((self.root / "Pulumi.yaml").read_text())
        text = yaml.safe_dump({**settings, "main": "impatient"})
        (self.root / "Pulumi.yaml").write_text(text)

    def start(self, *command: str) -> "subprocess.Popen[str]":
        options = ("--stack", self.name, "--non-interactive", "--color=never")
        return PulumiProject(self.root, self.environ).start("pulumi", *command, *options)

    def pulumi(self, *command: str) -> Done:
        return finished(self.start(*command), self._limit_s)

    def ok(self, *command: str) -> Done:
        done = self.pulumi(*command)
        assert done.code == 0, done.output
        return done

    def preview(self, *options: str) -> Done:
        return self.pulumi("preview", *options)

    def up(self, *options: str) -> Done:
        return self.pulumi("up", "--yes", "--skip-preview", *options)

    @contextmanager
    def going_up(self) -> Iterator["subprocess.Popen[str]"]:
        """`pulumi up` while the test does something else; it does not outlive the block."""
        process = self.start("up", "--yes", "--skip-preview")
        try:
            yield process
        finally:
            end(process)

    def destroy(self) -> Done:
        return self.pulumi("destroy", "--yes", "--skip-preview")


def end(process: "subprocess.Popen[str]") -> None:
    """Kills what tools/run runs, if it still does: tools/run then ends the plugins and itself."""
    if process.poll() is None:
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.wait(END_LIMIT_S)


def finished(process: "subprocess.Popen[str]", limit_s: float = LIMIT_S) -> Done:
    """Raises TimeoutExpired, and ends the command, if it takes longer."""
    with process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            end(process)
            raise
    return Done(process.returncode, said)
