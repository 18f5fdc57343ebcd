"""A verdict as text, JSON, or SARIF 2.1.0, which GitHub and editors show beside the lines."""

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote as url

from policies.evaluate import FORM, Finding, NotEvaluated, Verdict
from policies.rules import RULES
from policies.view import spelled

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL = {"mandatory": "error", "advisory": "warning"}
FORM_TITLE = "Values have the form that Kubernetes and Google take."


def lines(verdict: Verdict) -> Iterator[str]:
    for finding in verdict.findings:
        yield f"{finding.place}: {finding.message} [{finding.level}: {finding.rule}]"
    for one in verdict.not_evaluated:
        yield f"{one.item.where}: {one.message} [{one.level}: not evaluated]"


def summary(verdict: Verdict, objects: int, environment: str) -> str:
    levels = [finding.level for finding in verdict.findings]
    counts = f"{levels.count('mandatory')} mandatory, {levels.count('advisory')} advisory"
    skipped = len(verdict.not_evaluated)
    unknown = f", {skipped} not evaluated" if skipped else ""
    return f"{objects} objects by the rules of {environment}: {counts}{unknown}"


def as_json(verdict: Verdict, unreadable: list[str], environment: str) -> str:
    found = {
        "environment": environment,
        "findings": [_finding(finding) for finding in verdict.findings],
        "not_evaluated": [
            {
                "rule": one.rule,
                "level": one.level,
                "file": one.item.where,
                "kind": one.item.kind,
                "name": one.item.name,
                "path": spelled(one.path),
                "unknown": one.what,
            }
            for one in verdict.not_evaluated
        ],
        "unreadable": unreadable,
    }
    return json.dumps(found, indent=2)


def _finding(finding: Finding) -> dict[str, Any]:
    item = finding.fault.item
    return {
        "rule": finding.rule,
        "level": finding.level,
        "file": item.where,
        "line": finding.line,
        "kind": item.kind,
        "name": item.name,
        "path": spelled(finding.fault.path),
        "found": finding.fault.what,
        "fix": finding.fault.fix,
    }


def as_sarif(verdict: Verdict, unreadable: list[str], version: str) -> str:
    used = sorted({one.rule for one in (*verdict.findings, *verdict.not_evaluated)})
    driver = {
        "name": "raytpu",
        "version": version,
        "rules": [_described(id_) for id_ in used],
    }
    told = [{"level": "error", "message": {"text": line}} for line in unreadable]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": not unreadable, "toolExecutionNotifications": told}
        ],
        "results": [
            *(_result(finding) for finding in verdict.findings),
            *(_skipped(one) for one in verdict.not_evaluated),
        ],
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=2)


def _described(id_: str) -> dict[str, Any]:
    title = FORM_TITLE if id_ == FORM else RULES[id_].title
    why = title if id_ == FORM else RULES[id_].why
    return {"id": id_, "shortDescription": {"text": title}, "fullDescription": {"text": why}}


def _result(finding: Finding) -> dict[str, Any]:
    item = finding.fault.item
    named = f"{item.kind}/{item.name} {spelled(finding.fault.path)}".strip()
    return {
        "ruleId": finding.rule,
        "level": _LEVEL[finding.level],
        "message": {"text": f"{named}: {finding.message}"},
        "locations": [_location(item.where, finding.line)],
    }


def _skipped(one: NotEvaluated) -> dict[str, Any]:
    return {
        "ruleId": one.rule,
        "kind": "open",
        "level": "none",
        "message": {"text": one.message},
        "locations": [_location(one.item.where, one.item.line_of(one.path))],
    }


def _location(where: str, line: int | None) -> dict[str, Any]:
    """A file and its line, or the resource of a preview."""
    if line is None:
        return {"logicalLocations": [{"fullyQualifiedName": where, "kind": "resource"}]}
    artifact = {"uri": url(PurePath(where).as_posix())}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}}}
