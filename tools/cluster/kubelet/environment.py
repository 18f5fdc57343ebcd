"""The environment and arguments of a container, as Kubernetes composes them. Pure."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

Manifest = dict[str, Any]
Sources = Mapping[tuple[str, str], Mapping[str, bytes]]
"""(kind, name) -> data of a ConfigMap or Secret of the pod's namespace, of those that exist."""

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class MissingError(Exception):
    """What a container needs is not there (yet)."""


@dataclass(frozen=True)
class PodFacts:
    """What a container may ask about its pod, beyond the manifest."""

    pod: Manifest
    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str]
    """Of the node: what a container without a limit may use."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces $(NAME) by a known variable; $$ is a dollar; all else stays."""

    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return "$"
        return variables.get(found[2], found[0])

    return _REFERENCE.sub(replace, text)


def references(container: Manifest) -> Iterator[tuple[str, str]]:
    """The ConfigMaps and Secrets that a container's environment names."""
    for source in container.get("envFrom", []):
        yield _named(source)
    for entry in container.get("env", []):
        match entry.get("valueFrom"):
            case {"configMapKeyRef": reference}:
                yield "ConfigMap", reference["name"]
            case {"secretKeyRef": reference}:
                yield "Secret", reference["name"]


def variables(container: Manifest, facts: PodFacts, sources: Sources) -> dict[str, str]:
    """What env and envFrom say. Raises MissingError."""
    result: dict[str, str] = {}
    for source in container.get("envFrom", []):
        result |= _all_of(source, sources)
    for entry in container.get("env", []):
        if "valueFrom" not in entry:
            result[entry["name"]] = expand(entry.get("value", ""), result)
        elif (value := _value(entry["valueFrom"], container, facts, sources)) is not None:
            result[entry["name"]] = value
    return result


def command_line(
    container: Manifest, entrypoint: Sequence[str], environment: Mapping[str, str]
) -> list[str]:
    """A `command` replaces the image's entrypoint, `args` its arguments."""
    words = [*container.get("command", entrypoint), *container.get("args", [])]
    return [expand(word, environment) for word in words]


def field_value(path: str, facts: PodFacts) -> str:
    """A fieldRef. Raises MissingError for a path that no kubelet knows."""
    metadata, spec = facts.pod["metadata"], facts.pod["spec"]
    if keyed := _KEYED.fullmatch(path):
        return metadata.get(keyed[1], {}).get(keyed[2], "")
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec["nodeName"],
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
    }
    if path not in known:
        raise MissingError(f"unsupported fieldPath: {path}")
    return known[path]


def resource_value(reference: Manifest, container: Manifest, facts: PodFacts) -> str:
    """A resourceFieldRef: in units of its divisor, rounded up, as Kubernetes does."""
    kind, _, resource = reference["resource"].partition(".")
    resources = container.get("resources", {})
    amount = resources.get(kind, {}).get(resource)
    if amount is None and kind == "limits":
        amount = facts.allocatable.get(resource)
    divisor = parse_quantity(reference.get("divisor", "0")) or Decimal(1)
    return str(math.ceil(parse_quantity(amount or "0") / divisor))


def _all_of(source: Manifest, sources: Sources) -> dict[str, str]:
    kind, name = _named(source)
    data = sources.get((kind, name))
    optional = source.get("configMapRef", source.get("secretRef", {})).get("optional", False)
    if data is None and not optional:
        raise MissingError(f'{kind.lower()} "{name}" not found')
    prefix = source.get("prefix", "")
    return {f"{prefix}{key}": value.decode() for key, value in (data or {}).items()}


def _named(source: Manifest) -> tuple[str, str]:
    if "configMapRef" in source:
        return "ConfigMap", source["configMapRef"]["name"]
    return "Secret", source["secretRef"]["name"]


def _value(source: Manifest, container: Manifest, facts: PodFacts, sources: Sources) -> str | None:
    """None if an optional source is not there: then there is no variable."""
    match source:
        case {"fieldRef": reference}:
            return field_value(reference["fieldPath"], facts)
        case {"resourceFieldRef": reference}:
            return resource_value(reference, container, facts)
        case {"configMapKeyRef": reference}:
            return _key("ConfigMap", reference, sources)
        case {"secretKeyRef": reference}:
            return _key("Secret", reference, sources)
        case _:
            raise MissingError(f"unsupported valueFrom: {', '.join(source)}")


def _key(kind: str, reference: Manifest, sources: Sources) -> str | None:
    data = sources.get((kind, reference["name"]))
    if data is not None and reference["key"] in data:
        return data[reference["key"]].decode()
    if reference.get("optional", False):
        return None
    if data is None:
        raise MissingError(f'{kind.lower()} "{reference["name"]}" not found')
    raise MissingError(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
