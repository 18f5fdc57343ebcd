"""What `raytpu check` finds out: the faults of a stack file, or what it resolves to."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infra.config import LocalCluster, StackConfig, load
from infra.config.stackfile import UnreadableError, read, read_yaml
from infra.errors import ConfigError, Problem

PROJECT_FILE = "Pulumi.yaml"


@dataclass(frozen=True)
class Report:
    """What came out for one stack: a config, or problems, or why it could not be read."""

    file: str
    """As a user in the current folder would type it, or what was typed if it could not be read."""
    config: StackConfig | None = None
    problems: Sequence[Problem] = ()
    unreadable: str | None = None

    @property
    def exit_code(self) -> int:
        if self.unreadable:
            return 2
        return 1 if self.problems else 0


def cloud_faults(report: Report, local: str, fix: str) -> Iterator[str]:
    """What keeps a command of cloud stacks from its work, as `raytpu check` tells it.

    Args:
        report: Of one stack.
        local: What a local stack does instead.
        fix: The way out for one.
    """
    if report.unreadable:
        yield report.unreadable
    problems = [*report.problems]
    if report.config and isinstance(report.config.cluster, LocalCluster):
        problems.append(Problem.of("raytpu:cluster.mode", "local", local, fix))
    yield from (f"{report.file}: {problem}" for problem in problems)


def check(stack: str, *, online: bool = False) -> Report:
    """Read and judge one stack, given by its name or by a file.

    With `online`, the hub and buckets are asked about models.
    """
    try:
        path = _stack_file(stack)
        values = read(path)
    except UnreadableError as error:
        return Report(stack, unreadable=str(error))
    name = path.stem.removeprefix("Pulumi.")
    try:
        return Report(shown(path), config=load(values, stack=name, encrypted=True, online=online))
    except ConfigError as error:
        return Report(shown(path), problems=error.problems)


def check_text(text: bytes, file: str, called: str) -> Report:
    """As `check`, of what is in no file: `file` names the stack, `called` is said in messages."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file)
        path.write_bytes(text)
        report = check(str(path))
    unreadable = report.unreadable and report.unreadable.replace(str(path), called)
    return replace(report, file=called, unreadable=unreadable)


def shown(path: Path) -> str:
    """As a user in the current folder would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _stack_file(stack: str) -> Path:
    """Raises UnreadableError if there is no project around the current folder."""
    if "/" in stack or stack.endswith((".yaml", ".yml")):
        return Path(stack)
    path = new_file(stack)
    if path.is_file():
        return path
    known = sorted(other.stem.removeprefix("Pulumi.") for other in _stacks(path.parent))
    names = f"use {' or '.join(known)}" if known else f"create {shown(path)}"
    raise UnreadableError(f"{stack}: there is no file {shown(path)}; {names}")


def new_file(stack: str) -> Path:
    """Where the file of a stack of this name is, or would be. Raises as `_stack_file`."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / _stack_folder(folder / PROJECT_FILE) / f"Pulumi.{stack}.yaml"
    raise UnreadableError(
        f"{stack}: there is no {PROJECT_FILE} in {here} or above; go to the project or name a file"
    )


def _stacks(folder: Path) -> list[Path]:
    return [path for path in folder.glob("Pulumi.*.yaml") if path.name != PROJECT_FILE]


def _stack_folder(project: Path) -> str:
    """Where the project keeps its stack files, relative to it."""
    folder = read_yaml(project).get("stackConfigDir")
    return folder if isinstance(folder, str) else "."
