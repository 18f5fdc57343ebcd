"""What the API server would say of a custom resource: its CRD's structure, and its CEL rules.

The server drops fields that a CRD does not know, or refuses them when asked to be strict; here they
are faults, since what is dropped does not happen. Rules that compare with an older object
(`oldSelf`) are about updates, and left out.
"""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cel
from jsonschema import Draft202012Validator

RULES = "x-kubernetes-validations"
FREE_FORM = "x-kubernetes-preserve-unknown-fields"


def faults(resource: dict[str, Any], version: str) -> list[str]:
    """One line each: the place, and what is wrong there."""
    schema = _schema(resource["kind"], version)
    structural = [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for error in Draft202012Validator(schema).iter_errors(resource)
    ]
    return structural or [*_broken_rules(schema, _with_defaults(schema, resource), "")]


def rules(kind: str, version: str) -> list[str]:
    """All CEL rules of a CRD that can be judged of an object alone."""
    return [*_rules(_schema(kind, version))]


@cache
def _schema(kind: str, version: str) -> dict[str, Any]:
    file = Path(__file__).parent / f"{kind}-{version}.json.gz"
    schema = _strict(json.loads(gzip.decompress(file.read_bytes())))
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def _strict(schema: Any) -> Any:
    """Kubernetes' dialect as JSON Schema in which nothing unknown is allowed."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    if strict.pop("x-kubernetes-int-or-string", False):
        strict.pop("type", None)
        strict["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "properties" in strict and isinstance(strict.get("type"), str) and FREE_FORM not in strict:
        strict.setdefault("additionalProperties", False)
    return strict


def _with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """As the server completes it, before it judges it."""
    if isinstance(value, list) and "items" in schema:
        return [_with_defaults(schema["items"], one) for one in value]
    if not isinstance(value, dict):
        return value
    parts = schema.get("properties", {})
    defaults = {k: s["default"] for k, s in parts.items() if "default" in s and k not in value}
    return {k: _with_defaults(_part(schema, k), one) for k, one in {**defaults, **value}.items()}


def _broken_rules(schema: dict[str, Any], value: Any, where: str) -> Iterator[str]:
    for rule in schema.get(RULES, []):
        if "oldSelf" not in rule["rule"] and not cel.evaluate(rule["rule"], {"self": value}):
            yield f"{where}: {rule.get('message', rule['rule'])}"
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from _broken_rules(schema.get("items", {}), one, f"{where}[{index}]")
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _broken_rules(_part(schema, key), one, f"{where}.{key}".strip("."))


def _part(schema: dict[str, Any], key: str) -> dict[str, Any]:
    found = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
    return found if isinstance(found, dict) else {}


def _rules(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _rules(one)
    if isinstance(schema, dict):
        judged = [rule["rule"] for rule in schema.get(RULES, []) if "oldSelf" not in rule["rule"]]
        yield from judged
        for key, one in schema.items():
            yield from _rules(one) if key != RULES else ()
