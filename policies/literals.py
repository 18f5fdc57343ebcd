"""Secrets that stand where anybody reads them. No message shows a value, or a part of one."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from policies.documents import embedded
from policies.plain import mapping, sequence
from policies.pods import Pod, pods
from policies.rule import MANDATORY, Context, every, kinds, rule
from policies.view import Fault, Item, Path

_SHAPES = {
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{20,}",
    "a Google API key": r"\bAIza[0-9A-Za-z_-]{35}",
    "a Google access token": r"\bya29\.[0-9A-Za-z_-]{20,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,})",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20}",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    "a Weights & Biases key": r"\bwandb_v1_[A-Za-z0-9_]{20,}",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "an address with a password": r"\b[a-z][a-z0-9+.-]*://[^/\s:@'\"]*:[^/\s:@'\"$]{3,}@",
}
_ANY = re.compile("|".join(f"({shape})" for shape in _SHAPES.values()))
_WHAT = tuple(_SHAPES)
_SHORTEST = len("a://:abc@")
"""No shape is shorter."""
_KEY = re.compile(
    r"(?:^|[_.-])(?:password|passwd|passphrase|secret|token|credentials?|(?:api|access|private|"
    r"secret|signing|encryption)[_.-]?key)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_REFERENCE = re.compile(r"^\s*$|^\[secret\]$|^\$|^(?:projects|gs:|/|file:)|^[<*]")
"""Of values that only say where a secret is: a variable, a path, a placeholder."""
_FLAG = re.compile(
    r"(?<!\S)--?([A-Za-z0-9][A-Za-z0-9_.-]*)(?:=|\s+)([^\s'\"]+)|\b([A-Z][A-Z0-9_]*)=([^\s'\"]+)"
)
_KEY_KIND = "gcp.serviceaccount.Key"
_TEXTS_OF_YAML = ("runtimeEnvYAML", "serveConfigV2")


@rule(
    "secrets-literal",
    "No secret is written out, by its key or by the shape of its value.",
    why="Whoever may read the manifest, the state or the repository has it for good.",
    levels=MANDATORY,
    over=every,
)
def _literal(item: Item, _: Context) -> Iterator[Fault]:
    if _keeps_secrets(item):
        return
    fix = "revoke it, keep it in Secret Manager, and mount it as a file"
    for path, value, key in _texts(item):
        found = _ANY.search(value) if len(value) >= _SHORTEST else None
        if found is not None and found.lastindex is not None:
            yield Fault(item, path, f"holds {_WHAT[found.lastindex - 1]}", fix)
        elif name := _named(key, value):
            yield Fault(item, path, f"{name} is written out", fix)


def _keeps_secrets(item: Item) -> bool:
    """What is made for secrets, of which the engine shows no other form than the value."""
    return item.kind in ("Secret", "gcp.secretmanager.SecretVersion")


def _texts(item: Item) -> Iterator[tuple[Path, str, str]]:
    """Each with its path and the key or variable that names it, those of YAML in a text too."""
    root: Any = item.body
    above: list[tuple[Path, str, Any]] = [((), "", root)]
    while above:
        path, key, value = above.pop()
        if isinstance(value, dict):
            fields = mapping(value)
            named = fields.get("name")
            for name, inner in fields.items():
                own = named if name == "value" and isinstance(named, str) else str(name)
                above.append(((*path, name), own, inner))
        elif isinstance(value, list):
            above += [((*path, i), key, inner) for i, inner in enumerate(sequence(value))]
        elif isinstance(value, str) and len(value) > 1:
            yield path, value, key
            if key in _TEXTS_OF_YAML:
                for inner_key, text in _inside(embedded(value), key):
                    yield path, text, inner_key


def _inside(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    for name, inner in mapping(value).items():
        yield from _inside(inner, str(name))
    for inner in sequence(value):
        yield from _inside(inner, key)


def _named(key: str, value: str) -> str | None:
    """The name of a secret: of the key itself, or of a flag or variable in a command."""
    if _is_secret(key) and not _REFERENCE.search(value):
        return key
    if len(value) < 8 or ("=" not in value and "-" not in value):  # noqa: PLR2004 - as --token=
        return None
    for match in _FLAG.finditer(value):
        name, text = match[1] or match[3], match[2] or match[4]
        if _is_secret(name) and not _REFERENCE.search(text) and not text.startswith("-"):
            return name
    return None


@lru_cache(4096)
def _is_secret(key: str) -> bool:
    return bool(key) and _KEY.search(_CAMEL.sub("_", key).lower()) is not None


@rule(
    "secrets-in-files",
    "No Secret with its values is kept in a file.",
    why="base64 is no encryption: whoever reads the file has the secret.",
    levels=MANDATORY,
    over=kinds("Secret"),
)
def _in_files(item: Item, _: Context) -> Iterator[Fault]:
    """Of a rendering and of a preview the values are Pulumi's own secrets, which it hides."""
    if not item.written:
        return
    for field in ("data", "stringData"):
        for _name, node in item.root[field].entries():
            if isinstance(node.value, str) and not _REFERENCE.search(node.value):
                fix = "keep it in Secret Manager, or make it outside of the repository"
                yield node.fault("holds its value", fix)


@rule(
    "secrets-keys",
    "No key of a service account is made or mounted.",
    why="A downloaded key is valid anywhere, for ever; Workload Identity needs none.",
    levels=MANDATORY,
    over=lambda item: pods(item) if item.kind != _KEY_KIND else (item,),
)
def _keys(subject: Item | Pod, _: Context) -> Iterator[Fault]:
    fix = "give the role to the Kubernetes service account (Workload Identity)"
    if isinstance(subject, Item):
        yield Fault(subject, (), "makes a key to download", fix)
        return
    for container in subject.containers():
        for variable in container["env"]:
            if variable["name"].text == "GOOGLE_APPLICATION_CREDENTIALS":
                yield variable.fault("reads a key of a service account", fix)
