"""What kube-proxy does, for TCP: each cluster address is on the bridge and forwards to endpoints.

An address without ready endpoints refuses connections. A new connection goes to an endpoint by
chance; session affinity, node ports and UDP are not done. Services and endpoints are watched, so
that a restart of the API server changes nothing.
"""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from kubernetes.client import ApiClient

from tools.cluster.kubelet.kube import Kube, Manifest
from tools.cluster.network import Network, NetworkError, ip

SERVICES, SLICES = "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"
SERVICE_OF_SLICE = "kubernetes.io/service-name"
API_SERVICE = ("default", "kubernetes")
START_LIMIT_S = 30
STOP_LIMIT_S = 10
CONNECT_LIMIT_S = 10
RETRY_S = 1.0
CHUNK_BYTES = 256 * 1024

log = logging.getLogger(__name__)


class Address(NamedTuple):
    """Of a TCP port."""

    host: str
    port: int


Routes = dict[Address, tuple[Address, ...]]


class ServicesError(Exception):
    """Services are not there. One line that ends with the way out."""


def cluster_addresses(services: Iterable[Manifest]) -> set[str]:
    """Of all services but the headless ones and those that are another name."""
    addresses = {service["spec"].get("clusterIP") for service in services}
    return {address for address in addresses if address and address != "None"}


def routes(services: Iterable[Manifest], slices: Iterable[Manifest], api_server: Address) -> Routes:
    """Where connections to each port of each service go; ports that lead nowhere are left out.

    The service of the API server has no endpoints: it runs beside the pods, not among them.
    """
    ready: dict[tuple[str, str, str], list[Address]] = {}
    for one in slices:
        owner = one["metadata"].get("labels", {}).get(SERVICE_OF_SLICE, "")
        for port, address in _ready(one):
            ready.setdefault((one["metadata"]["namespace"], owner, port), []).append(address)
    found: Routes = {}
    for service in services:
        key = service["metadata"]["namespace"], service["metadata"]["name"]
        for host in cluster_addresses([service]):
            for port in service["spec"].get("ports", []):
                ends = (
                    [api_server] if key == API_SERVICE else ready.get((*key, port.get("name", "")))
                )
                if ends and port.get("protocol", "TCP") == "TCP":
                    found[Address(host, port["port"])] = tuple(sorted(set(ends)))
    return found


def _ready(one: Manifest) -> Iterator[tuple[str, Address]]:
    """Ready endpoints of a slice, each with the name of its port."""
    for endpoint in one.get("endpoints") or []:
        if endpoint.get("conditions", {}).get("ready") is False:
            continue
        for port in one.get("ports") or []:
            for host in endpoint["addresses"]:
                yield port.get("name", ""), Address(host, port["port"])


class Services:
    """Forwards while it is entered.

    Args:
        api: A client that may list all services and endpoint slices.
        network: On whose bridge the addresses are.
        api_server: Where the service of the API server leads.
    """

    def __init__(self, api: ApiClient, network: Network, api_server: Address) -> None:
        self._configuration = api.configuration
        self._network = network
        self._api_server = api_server
        self._objects: dict[str, dict[tuple[str, str], Manifest]] = {}
        self._routes: Routes = {}
        self._listeners: dict[Address, asyncio.Server] = {}
        self._addresses: set[str] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="services", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_LIMIT_S):
            self.stop()
            raise ServicesError(
                f"services: no list of them within {START_LIMIT_S} s; see the API server's log"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._work.cancel)
        self._thread.join(STOP_LIMIT_S)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._changed = asyncio.Event()
            self._work = self._loop.create_task(self._serve())
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._work)

    async def _serve(self) -> None:
        try:
            async with Kube(self._configuration) as kube, asyncio.TaskGroup() as group:
                group.create_task(self._follow(kube, SERVICES))
                group.create_task(self._follow(kube, SLICES))
                group.create_task(self._keep_up())
        finally:
            with contextlib.suppress(NetworkError):  # the bridge may be gone before us
                await self._apply(set(), {})

    async def _follow(self, kube: Kube, path: str) -> None:
        async for change in kube.watch(path):
            if isinstance(change, list):
                self._objects[path] = {_key(one): one for one in change}
            elif change["type"] == "DELETED":
                self._objects[path].pop(_key(change["object"]), None)
            else:
                self._objects[path][_key(change["object"])] = change["object"]
            self._changed.set()

    async def _keep_up(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not {SERVICES, SLICES} <= self._objects.keys():
                continue
            services, slices = (self._objects[path].values() for path in (SERVICES, SLICES))
            try:
                wanted = routes(services, slices, self._api_server)
                await self._apply(cluster_addresses(services), wanted)
            except (OSError, NetworkError) as error:
                log.warning("services: %s; tried again", error)
                await asyncio.sleep(RETRY_S)
                self._changed.set()
            else:
                self._ready.set()

    async def _apply(self, addresses: set[str], wanted: Routes) -> None:
        self._routes = wanted
        for address in addresses - self._addresses:
            await self._ip("add", address)
            self._addresses.add(address)
        for front in self._listeners.keys() - wanted.keys():
            self._listeners.pop(front).close()
        for front in wanted.keys() - self._listeners.keys():
            serve = partial(self._connect, front)
            self._listeners[front] = await asyncio.start_server(serve, front.host, front.port)
        for address in self._addresses - addresses:
            await self._ip("del", address)
            self._addresses.discard(address)

    async def _ip(self, verb: str, address: str) -> None:
        bridge = self._network.bridge
        await asyncio.to_thread(ip, "addr", verb, f"{address}/32", "dev", bridge)

    async def _connect(
        self, front: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        ends = self._routes.get(front, ())
        try:
            end = random.choice(ends)  # noqa: S311 # no secret
            async with asyncio.timeout(CONNECT_LIMIT_S):
                there, back = await asyncio.open_connection(end.host, end.port)
        except (OSError, TimeoutError, IndexError) as error:
            log.info("services: %s:%d leads nowhere (%s)", *front, error)
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, back))
                group.create_task(_pass_on(there, writer))
        except* OSError:
            writer.transport.abort()  # as it was at the other end
        finally:
            back.close()
            writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All there is, and that there is no more: the other direction may still be in use."""
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def _key(one: Manifest) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]
