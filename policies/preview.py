"""What `pulumi preview --json` says, as a view: the planned resources, and what would go.

Only here are steps to be seen. A policy pack is shown the resources that there will be, and so
cannot tell a pool that is replaced from one that is new, nor see one that is deleted.
"""

import json
from collections.abc import Mapping
from typing import Any

from policies.documents import ReadError, kind_of, name_of
from policies.plain import mapping, sequence
from policies.view import Item, Unknown, View

UNKNOWN = frozenset(
    {
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
"""What Pulumi's protocol says in place of a value that is not known, by the value's type."""
_ENVIRONMENT = "raytpu:environment"
_GONE: Mapping[str, str] = {
    "delete": "delete",
    "delete-replaced": "replace",
    "replace": "replace",
    "create-replacement": "replace",
}


def read_preview(text: str, where: str) -> View:
    """Raises ReadError for what is no JSON of a preview."""
    try:
        preview = json.loads(text)
        steps = preview["steps"]
        failed = [d["message"] for d in preview.get("diagnostics", []) if d["severity"] == "error"]
        items, gone = _resources(steps), _gone(steps)
        config = preview.get("config", {})
        hidden = _hidden(preview)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fix = "make it with `pulumi preview --json --show-sames`"
        raise ReadError(f"{where}: is no JSON of a preview; {fix}") from None
    if hidden:
        fix = "make it with `pulumi preview --json --show-sames`"
        raise ReadError(f"{where}: leaves out {hidden} resources that stay as they are; {fix}")
    if failed:
        first = str(failed[0]).strip().splitlines()[0]
        raise ReadError(f"{where}: the preview failed ({first}); mend that first")
    return View(items, gone, whole=True, environment=config.get(_ENVIRONMENT) or stated(items))


def stated(items: list[Item]) -> str | None:
    """The environment by the label that everything of a stack on Google Cloud carries."""
    for item in items:
        body = mapping(item.body)
        for labels in (mapping(body.get("resourceLabels")), mapping(body.get("labels"))):
            found = labels.get("environment")
            if item.kind.startswith("gcp.") and isinstance(found, str) and found:
                return found
    return None


def resource(type_: str, name: str, urn: str, props: Any, *, change: str | None = None) -> Item:
    """One of the engine's, by its type token: gcp:container/nodePool:NodePool."""
    package, _, rest = type_.partition(":")
    module, _, kind = rest.partition(":")
    if package == "kubernetes":
        version = module.removeprefix("core/")  # the core group has no name in manifests
        kind, name = kind_of(version, kind), name_of(mapping(props)) or name
    else:
        kind = f"{package}.{module.partition('/')[0]}.{kind}"
    return Item(kind, name, plain(props), urn, change=change, written=False)


def plain(value: Any) -> Any:
    """With whole numbers as such, for the protocol has only floats, and unknowns marked."""
    if isinstance(value, str):
        return Unknown() if value in UNKNOWN else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [plain(element) for element in sequence(value)]
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in mapping(value).items()}
    return value


def _hidden(preview: Any) -> int:
    """Resources that stay, and that are not among the steps unless they are asked for."""
    stay = preview.get("changeSummary", {}).get("same", 0)
    return max(stay - sum(step["op"] == "same" for step in preview["steps"]), 0)


def _resources(steps: Any) -> list[Item]:
    """Each resource that there will be, once: the step of a replacement comes in parts."""
    found: dict[str, Item] = {}
    for step in steps:
        state = step.get("newState")
        if state is not None and _GONE.get(step["op"]) != "delete":
            found[step["urn"]] = _item(step["urn"], state, None)
    return [*found.values()]


def _gone(steps: Any) -> list[Item]:
    found: dict[str, Item] = {}
    for step in steps:
        change = _GONE.get(step["op"])
        state = step.get("oldState") or step.get("newState")
        if change is not None and state is not None:
            found.setdefault(step["urn"], _item(step["urn"], state, change))
    return [*found.values()]


def _item(urn: str, state: Any, change: str | None) -> Item:
    name = urn.rpartition("::")[2]
    return resource(state["type"], name, urn, state.get("inputs", {}), change=change)
