"""What `pulumi up` says beside the API server's own words: what to look at, and the way out.

The errors are told apart by their words: those of Kubernetes, and of Pulumi's provider 4.34.
"""

import re
from collections.abc import Mapping
from typing import Any

from infra.ray.waits import LIMIT, WAIT_FOR, goal

_CONFLICT = re.compile(r'conflicts? with "([^"]+)"[^:]*:((?:\s*(?:- )?\.\S+)+)')
"""A manager of fields, and which of them it holds."""
_OTHER_NAMES = {"namespace": ("raytpu:team.namespace", "nothing in it is needed")}


def patience(manifest: Mapping[str, Any]) -> str:
    """What is waited for, for how long, and where to look meanwhile."""
    annotations = manifest["metadata"]["annotations"]
    return (
        f"{_key(manifest)}: waiting until it is {goal(annotations[WAIT_FOR])}, at most "
        f"{annotations[LIMIT]} seconds; {look(manifest)} say how far it is"
    )


def way_out(manifest: Mapping[str, Any], error: str) -> str | None:
    """One line, or None if the error says all there is."""
    if "timed out waiting for the condition" in error:
        return _timed_out(manifest)
    if "object is being deleted" in error or "because it is being terminated" in error:
        return f"{_key(manifest)} is still being deleted; run `pulumi up` again when it is gone"
    if "already exists" in error:
        return _there_already(manifest)
    if holders := _CONFLICT.findall(error):
        return _conflict(manifest, holders)
    return None


def still_to_come(error: str) -> bool:
    """Whether the API server does not know the kind yet."""
    return "no matches for kind" in error


def look(manifest: Mapping[str, Any]) -> str:
    """The commands that say how an object fares. What happens to its pods is an event of theirs."""
    kind, name = manifest["kind"].lower(), manifest["metadata"]["name"]
    at = f"kubectl --namespace {manifest['metadata']['namespace']}"
    return f"`{at} describe {kind} {name}` and `{at} get events --field-selector type=Warning`"


def last_line(text: str) -> str:
    """Of a failed job's message: Ray puts the end of its log there, and the cause comes last."""
    return text.strip().rpartition("\n")[2]


def log_command(job: Mapping[str, Any]) -> str:
    """Of the pod that submits the job, which prints the log of it."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    return f"its log with `kubectl --namespace {namespace} logs job/{name}`"


def _timed_out(manifest: Mapping[str, Any]) -> str:
    annotations = manifest["metadata"]["annotations"]
    return (
        f"{_key(manifest)} was not {goal(annotations[WAIT_FOR])} within {annotations[LIMIT]} "
        f"seconds: {look(manifest)} say why; `pulumi up` goes on waiting"
    )


def _there_already(manifest: Mapping[str, Any]) -> str:
    """What others made is never taken over: `pulumi destroy` would delete it."""
    kind, name = manifest["kind"].lower(), manifest["metadata"]["name"]
    setting, unused = _OTHER_NAMES.get(kind, ("the stack's name", "nobody uses it"))
    return (
        f"{_key(manifest)} is there already and is not this stack's, which would delete it one "
        f"day: change {setting}, or, if {unused}, run `kubectl delete {kind} {name}`"
    )


def _conflict(manifest: Mapping[str, Any], holders: list[tuple[str, str]]) -> str:
    held = "; ".join(f"{manager} holds {', '.join(_fields(text))}" for manager, text in holders)
    return (
        f"{_key(manifest)} was changed by others: {held}; undo the change there, or put this "
        "stack's values in its place: `PULUMI_K8S_ENABLE_PATCH_FORCE=true pulumi up`"
    )


def _fields(text: str) -> list[str]:
    return [part for part in text.split() if part != "-"]


def _key(manifest: Mapping[str, Any]) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"
