"""Measures Pulumi on many Ray clusters: the real engine, provider, API server and KubeRay operator.

    make bench

Of nodes there are only objects, and pods do not run: a stand-in says of each that it is ready.
Prints a table and writes .bench/cluster.json; fails if a figure grows faster than the clusters do.
"""

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from tests.cluster.real_stack import RealStack
from tests.cluster.seen import items, ray, request, request_text, wait_for
from tests.tools.project import Done
from tools.bench.pretend_kubelet import PretendKubelet
from tools.cluster.control_plane import ROOT, ControlPlane
from tools.cluster.nodes import cpu_nodes, slice_nodes
from tools.cluster.operator import create, install_definitions
from tools.cluster.program import Program
from tools.go.build import find

OUT = ROOT / ".bench"
CLUSTERS = (50, 100, 200)
LARGE = {"machine_type": "ct5p-hightpu-4t", "topology": "8x8x16"}
"""256 hosts."""
MIDDLE = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
SMALL = {"machine_type": "ct6e-standard-4t", "topology": "2x2"}
TEAM = {"name": "research", "cost_center": "ml-research"}
HEADS_PER_NODE = 16
LIMIT_S = 1800
"""Of one command of Pulumi."""
SLACK = 1.15
"""Of what should grow with the clusters: two cores serve all that is measured at once."""

STATE_ONCE = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
"""A backend of files, as here, writes the whole state at every step, which grows with the square of
the clusters; Pulumi Cloud is sent what has changed. This shows what is left without it. Not for
use: an `up` that is killed would have made what no state knows."""
WRITES_STATE = ("up", "destroy")
"""What is not held to grow with the clusters in time, for that reason; it is in API calls."""

USER = "pulumi"
COUNTED = re.compile(
    r'apiserver_flowcontrol_dispatched_requests_total\{flow_schema="pulumi".*\} (\S+)'
)


@dataclass(frozen=True)
class Measured:
    seconds: float
    calls: int


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        bench = Bench(Path(folder), running)
        figures = {count: bench.measure(count) for count in CLUSTERS}
    OUT.mkdir(exist_ok=True)
    text = {n: {what: vars(one) for what, one in of.items()} for n, of in figures.items()}
    OUT.joinpath("cluster.json").write_text(json.dumps(text, indent=2))
    Console().print(_table(figures))
    if faults := [*_faster_than_linear(figures)]:
        sys.exit("\n".join(faults))


class Bench:
    """A control plane with the operator, whose nodes and pods are objects alone."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder = folder
        # No agent reports on these nodes, and none of them is to be given up for it.
        plane = ControlPlane(
            folder / "plane", "10.245.0.0/20", controllers="*,-node-lifecycle-controller"
        )
        self._plane = running.enter_context(plane)
        self._api = plane.api
        install_definitions(self._api)
        running.enter_context(self._operator())
        running.enter_context(PretendKubelet(self._api))
        self._kubeconfig = self._counted_user()

    def measure(self, count: int) -> dict[str, Measured]:
        """A new stack of so many clusters, from nothing to nothing."""
        name = f"bench-{count}"
        changes = {"environment": name, "team": {**TEAM, "namespace": name}, **declared(count)}
        folder = self._folder / name
        stack = RealStack(folder, self._kubeconfig, name, changes, LIMIT_S)
        self._add_nodes(stack)
        figures = {
            "first preview": self._count(stack.preview),
            "up": self._count(stack.up),
            "until all clusters are ready": self._settle(stack),
            "preview": self._count(stack.preview),
            "refresh": self._count(lambda: stack.pulumi("refresh", "--yes", "--skip-preview")),
            "up again": self._count(stack.up),
            "destroy": self._count(stack.destroy),
        }
        stack.environ |= STATE_ONCE
        once = {"up": stack.up, "destroy": stack.destroy}
        return figures | {f"{what}, state written once": self._count(once[what]) for what in once}

    def _count(self, command: Callable[[], Done]) -> Measured:
        calls, started = self._calls(), time.monotonic()
        done = command()
        seconds = time.monotonic() - started
        if done.code:
            sys.exit(done.output)
        return Measured(round(seconds, 1), self._calls() - calls)

    def _settle(self, stack: RealStack) -> Measured:
        """What operator and scheduler take beyond `up`, which does not wait for clusters."""
        started = time.monotonic()
        path = ray(stack.name, "rayclusters")

        def ready() -> bool:
            found = [one.get("status", {}).get("state") for one in items(self._api, path)]
            return found == ["ready"] * len(stack.config.slices)

        wait_for("ready clusters", ready, LIMIT_S)
        return Measured(round(time.monotonic() - started, 1), 0)

    def _calls(self) -> int:
        """Requests of Pulumi alone, which the API server counts by their flow schema."""
        found = COUNTED.findall(request_text(self._api, "/metrics"))
        return int(sum(float(one) for one in found))

    def _operator(self) -> Program:
        """With as many requests a second as the clusters need at once, for which GKE is silent."""
        options = ("enable-leader-election=false", "metrics-addr=0", "health-probe-bind-address=0")
        many = ("reconcile-concurrency=4", "qps=200", "burst=400")
        command = [find("kuberay-operator", ROOT), *(f"--{one}" for one in (*options, *many))]
        environ = {"KUBECONFIG": str(self._plane.kubeconfig), "HOME": str(self._folder)}
        return Program("kuberay-operator", command, self._folder, environ)

    def _add_nodes(self, stack: RealStack) -> None:
        """The hosts of the stack's slices, and room for its heads."""
        made = [node for tpu in stack.config.slices for node in slice_nodes(tpu, zone="us-east5-b")]
        heads = len(stack.config.slices)
        for node in (*made, *cpu_nodes("us-east5-b", heads // HEADS_PER_NODE + 1)):
            status, spec = node["status"], node["spec"]
            name = f"{stack.name}-{node['metadata']['name']}"
            create(self._api, {**node, "metadata": {**node["metadata"], "name": name}})
            path = f"/api/v1/nodes/{name}"
            # A new node is tainted until the controller that we leave out finds it ready.
            request(self._api, "PATCH", path, {"spec": {"taints": spec["taints"]}})
            ready = {"type": "Ready", "status": "True", "reason": "Pretended"}
            request(
                self._api, "PATCH", f"{path}/status", {"status": {**status, "conditions": [ready]}}
            )

    def _counted_user(self) -> Path:
        """A kubeconfig of a user of its own, whose requests a flow schema counts."""
        account = {"kind": "ServiceAccount", "name": USER, "namespace": "default"}
        create(self._api, core("ServiceAccount", namespace="default"))
        rbac = "rbac.authorization.k8s.io"
        admin = {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}
        binding = core("ClusterRoleBinding", roleRef=admin, subjects=[account])
        create(self._api, {**binding, "apiVersion": f"{rbac}/v1"})
        create(self._api, flow_schema(account))
        path = f"/api/v1/namespaces/default/serviceaccounts/{USER}/token"
        asked = {"spec": {"expirationSeconds": 86_400}}
        token = request(self._api, "POST", path, asked)["status"]["token"]
        content = yaml.safe_load(self._plane.kubeconfig.read_text())
        content["users"][0]["user"] = {"token": token}
        file = self._folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(content))
        return file


def core(kind: str, namespace: str | None = None, **more: Any) -> dict[str, Any]:
    metadata = {"name": USER, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


def flow_schema(account: dict[str, str]) -> dict[str, Any]:
    whom = {key: account[key] for key in ("name", "namespace")}
    subject = {"kind": "ServiceAccount", "serviceAccount": whom}
    every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    rule = {
        "subjects": [subject],
        "resourceRules": [{**every, "clusterScope": True, "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    spec = {
        "priorityLevelConfiguration": {"name": "exempt"},
        "matchingPrecedence": 2,
        "rules": [rule],
    }
    return {**core("FlowSchema", spec=spec), "apiVersion": "flowcontrol.apiserver.k8s.io/v1"}


def declared(count: int) -> dict[str, Any]:
    """A hundredth of the clusters have a large slice, and half of the others one of four hosts."""
    shapes = [_shape(index) for index in range(count)]
    return {
        "slices": [{"name": f"s{index}", **shape} for index, shape in enumerate(shapes)],
        "workloads": [
            {"name": f"c{index}", "kind": "cluster", "slice": f"s{index}"} for index in range(count)
        ],
    }


def _shape(index: int) -> dict[str, str]:
    if index % 100 == 0:
        return LARGE
    return MIDDLE if index % 2 else SMALL


def _table(figures: dict[int, dict[str, Measured]]) -> Table:
    table = Table("what", *(f"{count} clusters" for count in figures), title="seconds, API calls")
    for what in next(iter(figures.values())):
        row = (figures[count][what] for count in figures)
        table.add_row(what, *(f"{one.seconds:.1f} s, {one.calls:,}" for one in row))
    return table


def _faster_than_linear(figures: dict[int, dict[str, Measured]]) -> Iterator[str]:
    least, *_, most = figures
    for what, small in figures[least].items():
        large = figures[most][what]
        limit = most / least * SLACK
        for unit in ("calls",) if what in WRITES_STATE else ("calls", "seconds"):
            before, after = getattr(small, unit), getattr(large, unit)
            if after > before * limit:
                yield f"{what}: {before:,} {unit} for {least} clusters, {after:,} for {most}"


if __name__ == "__main__":
    main()
