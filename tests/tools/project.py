"""A small Pulumi project on the real engine, with a state, a home and a stack of its own."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).parents[2]
LIMIT_S = 60


@dataclass(frozen=True)
class Done:
    """A finished `tools/run pulumi ...`."""

    code: int
    output: str

    @property
    def counts(self) -> dict[str, int]:
        """Resources by what was or would be done with them, as the engine sums up."""
        summary = self.output.rpartition("Resources:")[2]
        return {what: int(count) for count, what in re.findall(r"(\d+) (?:to )?(\w+)", summary)}


@dataclass(frozen=True)
class PulumiProject:
    """`tools/run` and what it needs are links to the repository's: it is run as users run it."""

    root: Path
    environ: dict[str, str]

    @classmethod
    def at(cls, root: Path, files: dict[str, str], links: tuple[str, ...] = ()) -> "PulumiProject":
        """Makes the project in the empty folder `root` from texts by path.

        `links` names what else of the repository it shows, e.g. "infra" and "pyproject.toml".
        """
        for name in (".venv", ".tools", "tools", *links):
            (root / name).symlink_to(REPOSITORY / name)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        # What the developer, or a tools/run around the tests, has set is no part of the test.
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("PULUMI_", "RAYTPU_"))
        }
        folders = kept["PATH"].split(os.pathsep)
        kept["PATH"] = os.pathsep.join(
            folder for folder in folders if not Path(folder).is_relative_to(REPOSITORY)
        )
        return cls(root, {**kept, "PULUMI_HOME": str(root / "home")})

    def start(self, *command: str, **environ: str) -> "subprocess.Popen[str]":
        """`tools/run COMMAND` in a process group of its own, as a terminal would start it."""
        return subprocess.Popen(
            [str(self.root / "tools/run"), *command],
            cwd=self.root,
            env={**self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        """The finished `tools/run COMMAND`, stdout and stderr together."""
        with self.start(*command, **environ) as process:
            try:
                said, _ = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, said, "")

    def ok(self, *command: str, **environ: str) -> str:
        """The output of `tools/run COMMAND`, which must succeed."""
        done = self.run(*command, **environ)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
        return done.stdout

    def processes(self) -> list[psutil.Process]:
        """All that run for the project: its folder is in their command line or variables."""
        others = (process for process in psutil.process_iter() if process.pid != os.getpid())
        return [process for process in others if _names(process, str(self.root))]


def _names(process: psutil.Process, text: str) -> bool:
    try:
        return text in " ".join(process.cmdline()) or text in process.environ().values()
    except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
