"""What a GkeStack registers, seen by a monitor that stands in for the engine."""

import time
from dataclasses import dataclass
from typing import Any

import pulumi
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks

from infra.config import LocalCluster, StackConfig
from infra.gke.stack import GkeStack

PROJECT_NUMBER = "123456789012"
ENDPOINT = "gke-1a2b.us-east5.gke.goog"

_SECRET = "4dabf18193072939515e22adb298388d"  # noqa: S105 - by which Pulumi marks a secret value


@dataclass(frozen=True)
class Registered:
    type: str
    name: str
    parent: str
    inputs: dict[str, Any]
    """As sent to the engine: keys in camelCase, secrets marked."""
    ignored: tuple[str, ...]
    replacing: tuple[str, ...]
    deleted_before_replaced: bool
    needs: frozenset[str]
    """Names of what it, or a component that it is part of, depends on, directly or not."""

    @property
    def is_component(self) -> bool:
        return self.type.startswith("raytpu:")


def register(config: StackConfig, *, preview: bool = False) -> list[Registered]:
    """In the order in which it was made."""
    cluster = config.cluster
    assert not isinstance(cluster, LocalCluster)
    monitor = _Monitor()
    pulumi.runtime.set_mocks(monitor.mocks, "raytpu", config.stack, preview, monitor=monitor)

    @pulumi.runtime.test
    def run() -> pulumi.Output[str]:
        return GkeStack("gke", config, cluster).urn

    run()
    return monitor.registered


def is_secret(value: Any) -> bool:
    return isinstance(value, dict) and _SECRET in value


class _Google(Mocks):
    def __init__(self) -> None:
        self.services: set[str] = set()

    def call(self, args: MockCallArgs) -> Any:
        """As Google answers: only if the API is on."""
        assert args.token == "gcp:organizations/getProject:getProject"  # noqa: S105 - a function
        assert "cloudresourcemanager.googleapis.com" in self.services
        return {"number": PROJECT_NUMBER, "projectId": args.args["projectId"]}

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if args.typ == "gcp:projects/service:Service":
            time.sleep(0.05)  # switching on an API takes longer than asking
            self.services.add(args.inputs["service"])
        made: dict[str, Any] = {
            "metadata": {**args.inputs.get("metadata", {}), "uid": f"uid of {args.name}"},
            "status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
        }
        if args.typ == "gcp:container/cluster:Cluster":
            made = {"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": ENDPOINT}}}
        return f"{args.name}-id", {**args.inputs, **made}


class _Monitor(MockMonitor):
    def __init__(self) -> None:
        super().__init__(_Google())
        self.registered: list[Registered] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - of the protocol
        response = super().RegisterResource(request)
        if request.type == "pulumi:pulumi:Stack":
            return response
        parent, *direct = (_name(urn) for urn in (request.parent, *request.dependencies))
        made = {one.name: one for one in self.registered}
        before = [made[name].needs for name in (parent, *direct) if name in made]
        self.registered.append(
            Registered(
                type=request.type,
                name=request.name,
                parent=parent,
                inputs=MessageToDict(request.object),
                ignored=tuple(request.ignoreChanges),
                replacing=tuple(request.replaceOnChanges),
                deleted_before_replaced=request.deleteBeforeReplace,
                needs=frozenset(direct).union(*before),
            )
        )
        return response


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]
