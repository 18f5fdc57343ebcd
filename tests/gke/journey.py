"""A stack's whole life on the real engine, gone through once and looked at by many tests."""

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gke.cloud_stack import CloudStack, Done, stack_file
from tests.standin.api import Made
from tests.standin.cloud import Cloud

STACKS = ("prod", "staging", "dev", "autopilot", "existing")
PROTECTED = "prod"
UNPROTECTED = {"deletion_protection": False}
EXAMPLES = ("v5e", "v5p", "tpu7x", "two-shapes")

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
    up: Done | None = None
    google: dict[str, Made] = field(default_factory=dict)
    kubernetes: list[dict[str, Any]] = field(default_factory=list)
    state: str = ""
    again: Done | None = None
    """A preview with nothing changed."""
    refreshed: Done | None = None
    """The same after a refresh."""
    what_if: dict[str, Done] = field(default_factory=dict)
    """Previews of changes to the stack file."""
    destroyed: Done | None = None
    way_out: tuple[Done, Done] | None = None
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
        stack.cloud.kubernetes.others.add(OTHERS)
        stack.pulumi("config", "set", "--secret", "--path", API_KEY_PATH, API_KEY)
    stack.cloud.google.others |= CORPORA
    if name in ("dev", "v5e"):
        stack.pulumi("config", "set", "--secret", TOKEN_KEY, TOKEN)
    return stack


def look(name: str, root: Path) -> Journey:
    """Only the first preview."""
    stack = prepare(name, root)
    with stack.cloud:
        return Journey(stack, stack.preview())


def travel(name: str, root: Path) -> Journey:
    stack = prepare(name, root)
    cloud = stack.cloud
    with cloud:
        journey = Journey(stack, stack.preview())
        journey.up = stack.up()
        journey.google = copy.deepcopy(cloud.google.made)
        journey.kubernetes = [copy.deepcopy(made.args) for made in cloud.kubernetes.made.values()]
        journey.state = stack.pulumi("stack", "export").output
        journey.again = stack.preview("--diff", "--expect-no-changes")
        refresh = stack.pulumi("refresh", "--yes", "--skip-preview")
        assert refresh.code == 0, refresh.output
        journey.refreshed = stack.preview("--diff", "--expect-no-changes")
        text = stack.file.read_text()
        for what, change in CHANGES.get(name, {}).items():
            stack.declare(**change(stack.declared))
            journey.what_if[what] = stack.preview()
        stack.file.write_text(text)
        journey.destroyed = stack.destroy()
        if name == PROTECTED:
            stack.declare(cluster={**stack.declared["raytpu:cluster"], **UNPROTECTED})
            journey.way_out = (stack.up("--target", "**:Cluster::*"), stack.destroy())
    return journey


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
