"""What a pull request does to the stacks, as Markdown: check, price, review, and the difference.

    tools/run python tools/pull_request/report.py BASE > report.md

BASE is the commit to compare with. Each version is rendered by its own code, with the packages that
are installed here. Exits with the worst of what check, cost and review exit with; the report is
whole in any case.
"""

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

MOST_LINES = 400
"""Of the difference: a comment on GitHub holds 65,536 characters."""
CALL = "from infra.cli.app import main; main()"


@dataclass(frozen=True)
class Section:
    title: str
    text: str
    """Markdown."""
    exit_code: int = 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="What a pull request does to the stacks.")
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    base = parser.parse_args(argv).base
    with tempfile.TemporaryDirectory() as folder:
        sections = [*_sections(Path.cwd(), base, Path(folder))]
    for section in sections:
        sign = "" if section.exit_code == 0 else f" (exit code {section.exit_code})"
        sys.stdout.write(f"## {section.title}{sign}\n\n{section.text}\n\n")
    return max(section.exit_code for section in sections)


def _sections(root: Path, base: str, scratch: Path) -> Iterator[Section]:
    files = _stacks(root)
    if not files:
        yield Section("check", "No stack is one of a cloud.")
        return
    checked = _raytpu(root, "check", *files)
    yield _check_section(files, checked)
    for file in _changed(root, base, files):
        priced = _raytpu(root, "cost", file, "--against", base, "--markdown")
        yield Section(f"cost of {file}", priced.stdout or _fenced(priced.stderr), priced.returncode)
    if checked.returncode:
        return  # nothing is rendered of stacks with faults
    now, before = scratch / "now", scratch / "before"
    _raytpu(root, "render", *files, "--out", now)
    # One by one: the rules are those of each stack's environment.
    reviews = [_raytpu(root, "review", folder.name, cwd=now) for folder in sorted(now.iterdir())]
    text = "".join(review.stdout + review.stderr for review in reviews)
    yield Section("review", _fenced(text), max(review.returncode for review in reviews))
    why_not = _render_base(root, base, scratch / "base", before)
    yield Section("difference of the renderings", why_not or _difference(before, now))


def _stacks(root: Path) -> list[str]:
    """Of all stacks in a cloud; what cannot be read is left for `raytpu check` to tell."""
    return [
        str(path.relative_to(root))
        for path in sorted(root.glob("stacks/**/Pulumi.*.yaml"))
        if not _is_local(path)
    ]


def _is_local(path: Path) -> bool:
    try:
        return yaml.safe_load(path.read_text())["config"]["raytpu:cluster"]["mode"] == "local"
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return False


def _changed(root: Path, base: str, files: list[str]) -> list[str]:
    done = _run(root, "git", "diff", "--name-only", "--relative", base, "--", "stacks")
    return [file for file in files if file in done.stdout.splitlines()]


def _render_base(root: Path, base: str, tree: Path, out: Path) -> str:
    """Why it could not be, if so."""
    added = _run(root, "git", "worktree", "add", "--detach", tree, base)
    if added.returncode:
        return f"None: {base} cannot be checked out.\n\n{_fenced(added.stderr)}"
    try:
        rendered = _raytpu(tree, "render", *_stacks(tree), "--out", out)
    finally:
        _run(root, "git", "worktree", "remove", "--force", tree)
    if rendered.returncode:
        return f"None: {base} cannot be rendered.\n\n{_fenced(rendered.stderr)}"
    return ""


def _difference(before: Path, now: Path) -> str:
    paths = {path.relative_to(top) for top in (before, now) for path in top.rglob("*.*")}
    lines = [line for path in sorted(paths) for line in _diff(before / path, now / path, path)]
    if not lines:
        return "None: `pulumi up` makes the same as before."
    text = _fenced("".join(lines[:MOST_LINES]), "diff")
    left = len(lines) - MOST_LINES
    return f"{text}\n\n{left} more lines are left out." if left > 0 else text


def _diff(before: Path, now: Path, name: Path) -> Iterator[str]:
    old, new = (_lines(path) for path in (before, now))
    return difflib.unified_diff(old, new, f"before/{name}", f"now/{name}")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True) if path.exists() else []


def _check_section(files: list[str], checked: "subprocess.CompletedProcess[str]") -> Section:
    """Faults, or else the remarks behind a click, without the tables of what is sound."""
    lines = (checked.stdout + checked.stderr).splitlines()
    told = _fenced("\n".join(line for line in lines if line.startswith("stacks/")))
    if checked.returncode == 0:
        told = (
            f"<details><summary>{len(files)} stacks without fault</summary>\n\n{told}\n</details>"
        )
    return Section("check", told, checked.returncode)


def _fenced(text: str, language: str = "") -> str:
    """As it is. A longer fence than any in the text keeps it so."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _raytpu(
    code: Path, *arguments: object, cwd: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """The command as it is in a checkout, whichever is installed; run there unless said."""
    environ = {**os.environ, "PYTHONPATH": str(code)}
    return _run(cwd or code, sys.executable, "-c", CALL, *arguments, env=environ)


def _run(
    cwd: Path, *command: object, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
