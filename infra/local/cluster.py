"""The Ray cluster as Pulumi resources: a workspace, a head, and slices that come and go whole."""

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, ResourceProvider

from infra.local import engine, ports, processes, ray_node
from infra.local.provider import Props, replacement, urn, user_errors
from infra.local.ray_api import RayApi
from infra.local.workspace import Workspace

READY_TIMEOUT_S = 60.0
GONE = ReadResult(id_="", outs={})


class _WorkspaceProvider(ResourceProvider):
    """Made first and deleted last: its end is the end of every process of the stack."""

    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        return replacement(_olds, _news, ["root", "stack", "storage"])

    @user_errors
    def create(self, props: Props) -> CreateResult:
        workspace = Workspace.of(props)
        processes.end(workspace.mark)  # of a run that was killed before it could record them
        workspace.prepare()
        return CreateResult(workspace.mark, {**props, "logs": str(workspace.logs)})

    @user_errors
    def read(self, id_: str, props: Props) -> ReadResult:
        return ReadResult(id_, props) if Workspace.of(props).exists() else GONE

    @user_errors
    def delete(self, _id: str, _props: Props) -> None:
        workspace = Workspace.of(_props)
        processes.end(workspace.mark)
        workspace.clear()


class WorkspaceResource(Resource, module="local", name="Workspace"):
    root: pulumi.Output[str]

    def __init__(
        self, name: str, workspace: Workspace, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        props = {**workspace.props(), "logs": None}
        super().__init__(_WorkspaceProvider(), name, props, opts)


class _HeadProvider(ResourceProvider):
    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        return replacement(_olds, _news, ["workspace", "cpus", "wanted_port"])

    @user_errors
    def create(self, props: Props) -> CreateResult:
        workspace = Workspace.of(props["workspace"])
        mark = workspace.mark_of("head")
        engine.report(props["urn"], "starting GCS, dashboard and raylet")
        port = ports.choose(props.get("wanted_port"), "raytpu:cluster.dashboard_port")
        with _all_or_nothing(mark):
            address = ray_node.start_head(
                mark, workspace.node("head"), cpus=int(props["cpus"]), dashboard_port=port
            )
            url = f"http://{ports.LOOPBACK}:{port}"
            RayApi(url).wait_ready(READY_TIMEOUT_S)
            pids = {"raylet": ray_node.raylet_pid(mark), "all": _pids(mark)}
        outs = {**props, "address": address, "dashboard_url": url, "pids": pids}
        return CreateResult(mark, outs)

    @user_errors
    def read(self, id_: str, props: Props) -> ReadResult:
        alive = processes.alive(int(props["pids"]["raylet"]), id_)
        return ReadResult(id_, props) if alive else GONE

    @user_errors
    def delete(self, _id: str, _props: Props) -> None:
        processes.end(_id)
        Workspace.of(_props["workspace"]).keep_logs("head")


class RayHead(Resource, module="local", name="RayHead"):
    """GCS, dashboard and a raylet without TPU: where drivers, data tasks and controllers run."""

    address: pulumi.Output[str]
    dashboard_url: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        *,
        workspace: Workspace,
        cpus: int,
        dashboard_port: int | None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {
            "workspace": workspace.props(),
            "cpus": cpus,
            "wanted_port": dashboard_port,
            "urn": urn(self, name),
            "address": None,
            "dashboard_url": None,
            "pids": None,
        }
        super().__init__(_HeadProvider(), name, props, opts)


class _SliceProvider(ResourceProvider):
    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        return replacement(_olds, _news, ["workspace", "address", "chips_per_host", "hosts"])

    @user_errors
    def create(self, props: Props) -> CreateResult:
        workspace = Workspace.of(props["workspace"])
        hosts, name = props["hosts"], props["slice_name"]
        mark = workspace.mark_of(name)
        engine.report(props["urn"], f"starting hosts: {len(hosts)}")
        with _all_or_nothing(mark):
            processes.end(mark)  # hosts that outlived a lost one of their slice
            with ThreadPoolExecutor(len(hosts)) as pool:
                starts = [pool.submit(_start_host, workspace, props, i) for i in range(len(hosts))]
            raylets = [start.result() for start in starts]
            _wait_whole(props["dashboard_url"], name, len(hosts))
        return CreateResult(mark, {**props, "pids": {"raylets": raylets, "all": _pids(mark)}})

    @user_errors
    def read(self, id_: str, props: Props) -> ReadResult:
        raylets = enumerate(props["pids"]["raylets"])
        whole = all(processes.alive(int(pid), f"{id_}/{host}") for host, pid in raylets)
        return ReadResult(id_, props) if whole else GONE

    @user_errors
    def delete(self, _id: str, _props: Props) -> None:
        processes.end(_id)
        for host in range(len(_props["hosts"])):
            Workspace.of(_props["workspace"]).keep_logs(f"{_props['slice_name']}-{host}")


class SimulatedSlice(Resource, module="local", name="SimulatedSlice"):
    """One slice, a raylet a host. One lost host means that the slice is lost, as on GKE."""

    def __init__(
        self,
        name: str,
        *,
        workspace: Workspace,
        head: RayHead,
        slice_name: str,
        chips_per_host: int,
        hosts: Sequence[Mapping[str, str]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`hosts`: the variables of each host's raylet, in the order of their worker ids."""
        props = {
            "workspace": workspace.props(),
            "address": head.address,
            "dashboard_url": head.dashboard_url,
            "slice_name": slice_name,
            "chips_per_host": chips_per_host,
            "hosts": [dict(host) for host in hosts],
            "urn": urn(self, name),
            "pids": None,
        }
        super().__init__(_SliceProvider(), name, props, opts)


def _start_host(workspace: Workspace, props: Mapping[str, Any], host: int) -> int:
    """The id of the raylet."""
    name = props["slice_name"]
    mark = workspace.mark_of(f"{name}/{host}")
    ray_node.start_host(
        mark,
        workspace.node(f"{name}-{host}"),
        address=props["address"],
        tpu_chips=int(props["chips_per_host"]),
        environment=props["hosts"][host],
    )
    engine.report(props["urn"], f"host {host} is up")
    return ray_node.raylet_pid(mark)


def _wait_whole(dashboard_url: str, slice_name: str, hosts: int) -> None:
    """Until Ray knows each host of the slice once."""
    api = RayApi(dashboard_url)
    api.wait_for(
        lambda: api.worker_ids(slice_name) == list(range(hosts)),
        READY_TIMEOUT_S,
        f"the {hosts} hosts of slice {slice_name} to be in Ray's list of nodes",
    )


def _pids(mark: str) -> list[int]:
    return sorted(process.pid for process in processes.find(mark))


@contextmanager
def _all_or_nothing(mark: str) -> Generator[None]:
    """Ends what has been started under `mark` when the rest of it fails."""
    try:
        yield
    except BaseException:
        processes.end(mark)
        raise
