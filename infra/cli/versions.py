"""Another version of a stack: another stack, or the same file at another commit."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from infra.cli.check import Report, check, check_text, new_file
from infra.config.stackfile import UnreadableError


@dataclass(frozen=True)
class Version:
    name: str
    report: Report | None
    """None if the file was not there yet."""


class UnknownVersionError(Exception):
    """Neither a stack nor a commit. One line that ends with the way out."""


def version(against: str, of: Path) -> Version:
    """A stack of that name, or else the file `of` at the commit of that name."""
    if _is_stack(against):
        report = check(against)
        return Version(report.file, report)
    commit = _git(
        of, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{against}^{{commit}}"
    )
    if commit is None:
        raise UnknownVersionError(
            f"{against}: is neither a stack nor a commit of the repository that {of} is in; "
            "name one, such as staging or main"
        )
    name = f"{against}:{of}"
    text = _git(of, "cat-file", "blob", f"{commit.decode().strip()}:./{of.name}")
    return Version(name, None if text is None else check_text(text, of.name, name))


def _is_stack(name: str) -> bool:
    try:
        return Path(name).is_file() or new_file(name).is_file()
    except UnreadableError:
        return False


def _git(beside: Path, *arguments: str) -> bytes | None:
    """What git says in the folder of a file; None if it refuses, or there is no git."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=beside.resolve().parent, capture_output=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
