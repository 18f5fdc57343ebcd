"""A stack of a test on the real engine, with the stand-in cloud and without any credentials."""

from pathlib import Path
from typing import Any

import yaml

from tests.standin.cloud import Cloud
from tests.tools.project import REPOSITORY, Done, PulumiProject

CREDENTIALS = ("GOOGLE_", "CLOUDSDK_", "GCLOUD_", "KUBE", "GCP_")


class CloudStack:
    """The project's program in a folder of its own, with its own stack file, state and home."""

    def __init__(self, root: Path, cloud: Cloud, file: Path, name: str = "") -> None:
        self.cloud, self.root = cloud, root
        self.name = name or file.stem.removeprefix("Pulumi.")
        self.declared: dict[str, Any] = yaml.safe_load(file.read_text())["config"]
        project = PulumiProject.at(root, {}, links=("infra", "workloads", "Pulumi.yaml"))
        (root / "stacks").mkdir()
        (root / "empty").mkdir()
        kept = {k: v for k, v in project.environ.items() if not k.startswith(CREDENTIALS)}
        self.environ = {**kept, **cloud.environ, "HOME": str(root / "empty")}
        self._project = PulumiProject(root, self.environ)
        self.declare()
        created = self.pulumi("stack", "init")
        assert created.code == 0, created.output

    @property
    def file(self) -> Path:
        return self.root / f"stacks/Pulumi.{self.name}.yaml"

    def declare(self, **changes: Any) -> None:
        """Writes the stack file with keys of namespace raytpu put in place of its own."""
        config = self.declared | {f"raytpu:{key}": value for key, value in changes.items()}
        self.file.write_text(yaml.safe_dump({"config": config}))

    def pulumi(self, *command: str) -> Done:
        options = ("--stack", self.name, "--non-interactive", "--color=never")
        done = self._project.run("pulumi", *command, *options)
        return Done(done.returncode, done.stdout)

    def preview(self, *options: str) -> Done:
        return self.pulumi("preview", *options)

    def up(self, *options: str) -> Done:
        return self.pulumi("up", "--yes", "--skip-preview", *options)

    def destroy(self) -> Done:
        return self.pulumi("destroy", "--yes", "--skip-preview")


def stack_file(name: str) -> Path:
    """Of a stack we ship, or of an example."""
    for folder in ("stacks", "stacks/examples"):
        path = REPOSITORY / folder / f"Pulumi.{name}.yaml"
        if path.is_file():
            return path
    raise FileNotFoundError(name)
