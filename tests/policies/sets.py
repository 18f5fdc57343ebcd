"""Sets of documents that are right, and how a test changes one field of one."""

import copy
import io
import json
from pathlib import Path

import yaml

from policies.documents import read
from policies.paths import parsed

GOOD = Path(__file__).parent / "good"
SETS = {path.stem: path for path in sorted(GOOD.glob("*.yaml"))} | {"cloud": GOOD / "cloud"}
GONE = object()
"""In place of a value: the field is left out."""


def good(name):
    """The documents of a set: file name to its list of documents."""
    if name == "cloud":
        return {path.name: json.loads(path.read_text()) for path in sorted(SETS[name].iterdir())}
    return {SETS[name].name: [*yaml.safe_load_all(SETS[name].read_text())]}


def changed(documents, of, changes):
    """A copy in which fields of the document `of`, "Kind/name", are others."""
    documents = copy.deepcopy(documents)
    target = next(one for key, one in _each(documents) if key == of)
    for path, value in changes.items():
        put(target, parsed(path), value if value is GONE else copy.deepcopy(value))
    return documents


def put(target, path, value):
    *parts, last = path
    for part in parts:
        target = target.setdefault(part, {}) if isinstance(target, dict) else target[part]
    if value is GONE:
        del target[last]
    elif isinstance(target, list) and last == len(target):
        target.append(value)
    else:
        target[last] = value


def items(documents, folder):
    """As they are read from files."""
    for name, found in documents.items():
        text = json.dumps(found) if name.endswith(".json") else yaml.safe_dump_all(found)
        (folder / name).write_text(text)
    result = read([str(folder)], io.BytesIO())
    assert not result.unreadable
    return result.items


def _each(documents):
    for name, found in documents.items():
        for one in found:
            for part in one["items"] if one.get("kind") == "List" else [one]:
                if name.endswith(".json"):
                    yield f"{name.removesuffix('.json')}/{part.get('name', 0)}", part
                else:
                    yield f"{part['kind']}/{part['metadata']['name']}", part
