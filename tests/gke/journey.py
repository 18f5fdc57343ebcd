"""A stack's whole life on the real engine, gone through once and looked at by many tests."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gke.cloud_stack import CloudStack, Done, stack_file
from tests.standin.api import Made
from tests.standin.cloud import Cloud

STACKS = (
    *("prod", "staging", "dev", "autopilot", "existing"),
    *("v5e", "v5p", "tpu7x", "two-shapes"),
)
PROTECTED = "prod"
UNPROTECTED = {"deletion_protection": False}

LIMIT_S = 900
"""Of a test that waits for a journey, on a machine that has other work as well."""

TOKEN = "hf-token-of-a-test"  # noqa: S105 - nobody's
TOKEN_KEY = "raytpu:hugging_face_token"  # noqa: S105 - a key of the stack file
API_KEY = "api-key-of-a-test"
API_KEY_PATH = "raytpu:workloads[2].api_key"
OTHERS = "others.example"
"""Where the cluster that is there already answers."""
CORPORA = {"acme-ml-corpora", "acme-ml-prod-corpora"}
"""Buckets of the users, who read their own sources."""

Change = Callable[[dict[str, Any]], dict[str, Any]]
"""From what a stack file declares to keys that are put in place of its own."""

KUBECONFIG = f"""
apiVersion: v1
kind: Config
current-context: others
clusters: [{{name: others, cluster: {{server: "https://{OTHERS}"}}}}]
contexts: [{{name: others, context: {{cluster: others, user: others}}}}]
users: [{{name: others, user: {{}}}}]
"""


@dataclass
class Journey:
    """What each command said, and what was there after `up`."""

    stack: CloudStack
    first: Done
    """A preview while nothing exists."""
    up: Done
    google: dict[str, Made]
    kubernetes: list[dict[str, Any]]
    state: str
    again: Done
    """A preview with nothing changed."""
    refreshed: Done
    """The same after a refresh."""
    what_if: dict[str, Done]
    """Previews of changes to the stack file."""
    destroyed: Done
    way_out: tuple[Done, Done] | None
    """Of a protected cluster: what takes the protection away, and the second `destroy`."""

    def pools(self) -> list[dict[str, Any]]:
        return [made.args for made in self.google.values() if made.type.endswith(":NodePool")]

    def objects(self, kind: str) -> dict[str, dict[str, Any]]:
        found = [one for one in self.kubernetes if one["kind"] == kind]
        return {one["metadata"]["name"]: one for one in found}


def prepare(name: str, root: Path) -> CloudStack:
    stack = CloudStack(root, Cloud(), stack_file(name))
    if name == "existing":
        (root / "kubeconfig").write_text(KUBECONFIG)
        stack.environ["KUBECONFIG"] = str(root / "kubeconfig")
        stack.cloud.kubernetes.kubeconfig = stack.environ["KUBECONFIG"]
        stack.cloud.kubernetes.others.add(OTHERS)
        stack.pulumi("config", "set", "--secret", "--path", API_KEY_PATH, API_KEY)
    stack.cloud.google.others |= CORPORA
    if name in ("dev", "v5e"):
        stack.pulumi("config", "set", "--secret", TOKEN_KEY, TOKEN)
    return stack


def travel(name: str, root: Path) -> Journey:
    stack = prepare(name, root)
    with stack.cloud as cloud:
        return Journey(
            stack,
            first=stack.preview(),
            up=stack.up(),
            google=copy.deepcopy(cloud.google.made),
            kubernetes=[copy.deepcopy(made.args) for made in cloud.kubernetes.made.values()],
            state=stack.pulumi("stack", "export").output,
            again=stack.preview("--diff", "--expect-no-changes"),
            refreshed=_refreshed(stack),
            what_if={what: _what_if(stack, c) for what, c in CHANGES.get(name, {}).items()},
            destroyed=stack.destroy(),
            way_out=_way_out(stack) if name == PROTECTED else None,
        )


def _refreshed(stack: CloudStack) -> Done:
    refresh = stack.pulumi("refresh", "--yes", "--skip-preview")
    assert refresh.code == 0, refresh.output
    return stack.preview("--diff", "--expect-no-changes")


def _what_if(stack: CloudStack, change: Change) -> Done:
    text = stack.file.read_text()
    stack.declare(**change(stack.declared))
    done = stack.preview()
    stack.file.write_text(text)
    return done


def _way_out(stack: CloudStack) -> tuple[Done, Done]:
    stack.declare(cluster={**stack.declared["raytpu:cluster"], **UNPROTECTED})
    return stack.up("--target", "**:Cluster::*"), stack.destroy()


def _another_copy(declared: dict[str, Any]) -> dict[str, Any]:
    train, chat = declared["raytpu:slices"]
    data, pretrain, serve = declared["raytpu:workloads"]
    pretrain = {**pretrain, "mesh": {"data": 24, "tensor": 4}, "global_batch": 192}
    return {"slices": [{**train, "count": 3}, chat], "workloads": [data, pretrain, serve]}


def _another_slice(declared: dict[str, Any]) -> dict[str, Any]:
    new = {
        "name": "eval",
        "machine_type": "ct6e-standard-4t",
        "topology": "4x4",
        "capacity": [{"spot": {}}],
    }
    return {"slices": [*declared["raytpu:slices"], new]}


def _another_topology(declared: dict[str, Any]) -> dict[str, Any]:
    train, chat = declared["raytpu:slices"]
    data, pretrain, serve = declared["raytpu:workloads"]
    pretrain = {**pretrain, "mesh": {"data": 8, "tensor": 4}}
    return {
        "slices": [{**train, "topology": "4x4"}, chat],
        "workloads": [data, pretrain, serve],
    }


def _another_machine(declared: dict[str, Any]) -> dict[str, Any]:
    train, chat = declared["raytpu:slices"]
    return {"slices": [train, {**chat, "machine_type": "ct6e-standard-4t", "topology": "2x2"}]}


CHANGES = {
    "prod": {
        "another copy of train": _another_copy,
        "another slice": _another_slice,
        "another topology of train": _another_topology,
        "another machine of chat": _another_machine,
    }
}
