"""A local stack of a test: the project's program on the real engine, in a folder of its own."""

import json
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import yaml

from infra.local import processes
from infra.local.workspace import Workspace
from tests.tools.project import REPOSITORY, Done, PulumiProject

UP_LIMIT_S = 900


class LocalStack:
    """Its folder holds links to the project's parts, and its own stack file and state."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.project = PulumiProject.at(root, {}, links=("infra", "workloads", "Pulumi.yaml"))
        (root / "stacks").mkdir()
        self.root = root

    @property
    def mark(self) -> str:
        return Workspace(str(self.root), self.name, "").mark

    @property
    def storage(self) -> Path:
        return self.root / ".raytpu" / self.name / "storage"

    def declare(self, **config: Any) -> None:
        """Writes the stack file: the keys of namespace raytpu, and what all tests share."""
        declared = {"environment": "local", "cluster": {"mode": "local"}, "workloads": []} | config
        text = yaml.safe_dump({"config": {f"raytpu:{key}": v for key, v in declared.items()}})
        (self.root / f"stacks/Pulumi.{self.name}.yaml").write_text(text)

    def start(self, *command: str, **environ: str) -> "subprocess.Popen[str]":
        return self.project.start(*command, **environ)

    def run(self, *command: str, **environ: str) -> Done:
        process = self.start(*command, **environ)
        try:
            output, _ = process.communicate(timeout=UP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return Done(process.returncode, output)

    def pulumi(self, verb: str, *options: str, **environ: str) -> Done:
        return self.run("pulumi", verb, "--stack", self.name, "--color=never", *options, **environ)

    def up(self, *options: str, **environ: str) -> Done:
        self.run("python", "tools/pulumi/heal.py", self.name)
        created = self.run("pulumi", "stack", "select", "--create", "--stack", self.name)
        assert created.code == 0, created.output
        return self.pulumi("up", "--yes", "--skip-preview", *options, **environ)

    def make(self, target: str) -> Done:
        """What the Makefile does with the stack, where all is set up."""
        planned = subprocess.run(
            ["make", "--dry-run", target, f"STACK={self.name}"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        commands = [shlex.split(line) for line in planned.stdout.splitlines()]
        output = ""
        for runner, *command in [words for words in commands if self.name in words]:
            assert runner == "tools/run"
            done = self.run(*command)
            output += done.output
            if done.code != 0:
                return Done(done.code, output)
        return Done(0, output)

    def destroy(self) -> Done:
        self.run("python", "tools/pulumi/heal.py", self.name)
        return self.pulumi("destroy", "--yes", "--skip-preview")

    def outputs(self) -> dict[str, Any]:
        done = subprocess.run(
            [str(self.root / "tools/run"), "pulumi", "stack", "output", "--json", "-s", self.name],
            cwd=self.root,
            env=self.project.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    def state(self) -> dict[str, dict[str, Any]]:
        """Each resource's outputs by its name, secrets as they lie in the state."""
        exported = self.run("pulumi", "stack", "export", "--stack", self.name).output
        resources = json.loads(exported)["deployment"]["resources"]
        return {r["urn"].rpartition("::")[2]: r.get("outputs", {}) for r in resources}

    def processes(self) -> list[psutil.Process]:
        return processes.find(self.mark)


def one_chip(**changes: object) -> dict[str, object]:
    return {"name": "tiny", "machine_type": "ct6e-standard-1t", "topology": "1x1", **changes}


def wait_until(holds: Callable[[], object], limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"waited {limit_s} s for {what}"
        time.sleep(0.2)
