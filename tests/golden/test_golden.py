"""What each stack makes is what was reviewed: a rendering a stack, beside this file.

A change on purpose is taken over with `pytest tests/golden --golden-rewrite`, and reviewed as the
difference that git shows.
"""

import difflib
import shutil
from pathlib import Path

import pytest

from infra.cli.check import check
from infra.cli.render import render, write
from tests.tools.project import REPOSITORY

GOLDEN = Path(__file__).parent
STACKS = {
    path.stem.removeprefix("Pulumi."): path
    for path in sorted(REPOSITORY.glob("stacks/**/Pulumi.*.yaml"))
    if path.stem != "Pulumi.local"
}


@pytest.fixture
def rewrite(request):
    return request.config.getoption("--golden-rewrite")


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_makes_what_was_reviewed(stack, rewrite):
    report = check(str(STACKS[stack]))
    assert report.config, report.problems
    documents = render(report.config)
    if rewrite:
        write(documents, GOLDEN / stack)
    reviewed = {
        str(path.relative_to(GOLDEN / stack)): path.read_text()
        for path in (GOLDEN / stack).glob("*/*")
    }
    rendered = {document.path: document.text for document in documents}
    changes = [*_changes(reviewed, rendered)]
    assert not changes, "\n".join([*changes, "take it over with: pytest --golden-rewrite"])


def test_there_is_no_rendering_of_a_stack_that_is_gone(rewrite):
    kept = {path for path in GOLDEN.iterdir() if path.is_dir() and any(path.glob("*/*"))}
    gone = [path for path in kept if path.name not in STACKS]
    for path in gone if rewrite else []:
        shutil.rmtree(path)
    assert rewrite or not gone


def _changes(reviewed, rendered):
    for path in sorted(reviewed.keys() | rendered.keys()):
        old, new = (texts.get(path, "").splitlines() for texts in (reviewed, rendered))
        yield from difflib.unified_diff(old, new, f"reviewed/{path}", f"now/{path}", lineterm="")
