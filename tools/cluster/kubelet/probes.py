"""Probes and hooks of a container: what they ask, and when their answers count."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tools.cluster.kubelet.process import Process, StartError

Manifest = dict[str, Any]
Check = Callable[[], Awaitable[str | None]]
"""None if all is well, or what is wrong."""

KINDS = ("startupProbe", "livenessProbe", "readinessProbe")
HANDLERS = ("exec", "httpGet", "tcpSocket")
HTTP_OK = range(200, 400)
OUTPUT_SHOWN = 200


def unsupported(container: Manifest) -> Iterator[str]:
    for kind in KINDS:
        probe = container.get(kind)
        if probe is not None and not any(handler in probe for handler in HANDLERS):
            has = ", ".join(sorted({"grpc"} & set(probe))) or "nothing"
            yield f'{kind} of "{container["name"]}" has {has}: use one of {", ".join(HANDLERS)}'


@dataclass(frozen=True)
class Handler:
    """Asks one container."""

    container: Manifest
    process: Process
    address: str

    def check(self, probe: Manifest) -> Check:
        async def ask() -> str | None:
            return await self.ask(probe, probe.get("timeoutSeconds", 1))

        return ask

    async def ask(self, handler: Manifest, limit_s: float) -> str | None:
        """One probe, or one hook."""
        try:
            match handler:
                case {"exec": {"command": command}}:
                    return await self._execute(command, limit_s)
                case {"httpGet": action}:
                    return await self._http(action, limit_s)
                case {"tcpSocket": action}:
                    return await self._connect(action, limit_s)
                case {"sleep": {"seconds": seconds}}:
                    await asyncio.sleep(seconds)
                    return None
                case _:
                    return f"unsupported handler: {', '.join(handler)}"
        except TimeoutError:
            return f"no answer within {limit_s:g} s"

    async def _execute(self, command: list[str], limit_s: float) -> str | None:
        try:
            code, output = await self.process.execute(command, limit_s)
        except StartError as error:
            return str(error)
        return None if code == 0 else f"exit code {code}: {output[:OUTPUT_SHOWN]}"

    async def _http(self, action: Manifest, limit_s: float) -> str | None:
        scheme = action.get("scheme", "HTTP").lower()
        host, port = action.get("host", self.address), self._port(action["port"])
        url = f"{scheme}://{host}:{port}{_absolute(action.get('path', '/'))}"
        headers = {h["name"]: h["value"] for h in action.get("httpHeaders", [])}
        # A kubelet does not check certificates either.
        client = httpx.AsyncClient(verify=False, trust_env=False, timeout=limit_s)  # noqa: S501
        try:
            async with asyncio.timeout(limit_s), client as http:
                answer = await http.get(url, headers={"User-Agent": "kube-probe/1", **headers})
        except httpx.HTTPError as error:
            return f"{url}: {type(error).__name__} {error}"
        if answer.status_code in HTTP_OK:
            return None
        return f"HTTP probe failed with statuscode: {answer.status_code}"

    async def _connect(self, action: Manifest, limit_s: float) -> str | None:
        host, port = action.get("host", self.address), self._port(action["port"])
        try:
            async with asyncio.timeout(limit_s):
                _, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            return f"dial tcp {host}:{port}: {error}"
        writer.close()
        return None

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        ports = {p.get("name"): p["containerPort"] for p in self.container.get("ports", [])}
        return ports.get(port) or int(port)


async def verdicts(probe: Manifest, check: Check) -> AsyncIterator[str | None]:
    """Each time that enough answers in a row agree: None for good, else what is wrong."""
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    good = bad = 0
    while True:
        wrong = await check()
        good, bad = (good + 1, 0) if wrong is None else (0, bad + 1)
        if good >= probe.get("successThreshold", 1):
            yield None
        elif bad >= probe.get("failureThreshold", 3):
            yield wrong
        await asyncio.sleep(probe.get("periodSeconds", 10))


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"
