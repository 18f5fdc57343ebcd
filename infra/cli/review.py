"""What `raytpu review` does: the rules of `policies` on anybody's YAML, or on a preview."""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import yaml

from policies import report
from policies.documents import ReadError, read, read_text
from policies.evaluate import Verdict, evaluate
from policies.preview import read_preview, stated
from policies.rules import RULES
from policies.settings import OTHER, SettingsError, settings_of
from policies.view import View

Form = Literal["text", "json", "sarif"]

CLEAN, REFUSED, COULD_NOT = 0, 1, 2


@dataclass(frozen=True)
class Request:
    paths: list[str]
    previews: list[str] = field(default_factory=list[str])
    environment: str | None = None
    """None: as the documents say it, or else the default."""
    settings: Path | None = None
    strict: bool = False
    form: Form = "text"


def review(request: Request) -> int:
    """Prints the verdict; the exit code."""
    with _no_search_for_cycles():
        return _review(request)


@contextmanager
def _no_search_for_cycles() -> Generator[None]:
    """Nodes of YAML are many, stay to the end, and form none: the search doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _review(request: Request) -> int:
    views: list[View] = []
    unreadable: list[str] = []
    if request.paths:
        documents = read(request.paths, sys.stdin.buffer)
        unreadable += documents.unreadable
        views.append(View(documents.items, environment=stated(documents.items)))
    for path in request.previews:
        try:
            views.append(read_preview(read_text(path, sys.stdin.buffer), path))
        except ReadError as error:
            unreadable.append(str(error))
    view = _together(views)
    if not view.items and not view.steps and not unreadable:
        named = ", ".join([*request.paths, *request.previews])
        unreadable.append(
            f"{named}: no object of Kubernetes is in it; name manifests, and of a stack file what "
            "`raytpu render STACK --out DIR` makes of it"
        )
    environment = request.environment or view.environment or OTHER
    try:
        settings = settings_of(environment, _settings_file(request.settings), RULES)
    except SettingsError as error:
        sys.stderr.write(f"{request.settings}: {error}\n")
        return COULD_NOT
    if request.strict:
        settings = settings.model_copy(update={"strict": True})
    verdict = evaluate(view, settings, environment)
    _show(verdict, view, unreadable, environment, request.form)
    if unreadable:
        return COULD_NOT
    return REFUSED if verdict.refused else CLEAN


def _together(views: list[View]) -> View:
    if len(views) == 1:
        return views[0]
    return View(
        [item for view in views for item in view.items],
        [step for view in views for step in view.steps],
        environment=next((view.environment for view in views if view.environment), None),
    )


def _settings_file(path: Path | None) -> Any:
    """Raises SettingsError."""
    if path is None:
        return None
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        first = str(error).splitlines()[0]
        raise SettingsError(f"cannot be read ({first}); see docs/policies.md") from None


def _show(
    verdict: Verdict, view: View, unreadable: list[str], environment: str, form: Form
) -> None:
    match form:
        case "json":
            sys.stdout.write(f"{report.as_json(verdict, unreadable, environment)}\n")
        case "sarif":
            sys.stdout.write(f"{report.as_sarif(verdict, unreadable, version('raytpu'))}\n")
        case "text":
            for line in report.lines(verdict):
                sys.stdout.write(f"{line}\n")
            sys.stdout.write(f"{report.summary(verdict, len(view.items), environment)}\n")
    for line in unreadable:
        sys.stderr.write(f"{line}\n")
