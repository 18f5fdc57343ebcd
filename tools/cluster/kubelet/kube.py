"""The Kubernetes API as this agent uses it: plain JSON, watches that come back by themselves.

The client library's watch cannot be ended while it waits, nor its models compared with what a
kubelet must write: hence httpx, with the same credentials.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx
from kubernetes.client import Configuration

Manifest = dict[str, Any]

REQUEST_LIMIT_S = 30
SERVER_FAULT, TOO_MANY, NOT_FOUND, CONFLICT = 500, 429, 404, 409
RETRY_S = 1.0
WATCH_S = 300
"""After which the server ends a watch; it is taken up again where it was."""

_STRATEGIC_MERGE = "application/strategic-merge-patch+json"

logger = logging.getLogger(__name__)


class ApiError(Exception):
    """The API server refused, or cannot be reached (status None)."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)

    @property
    def refused(self) -> bool:
        """Whether asking again is of no use."""
        return self.status is not None and self.status < SERVER_FAULT and self.status != TOO_MANY


class Kube:
    """A connection to one API server."""

    def __init__(self, configuration: Configuration) -> None:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
        token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        self._http = httpx.AsyncClient(
            base_url=configuration.host,
            verify=context,
            headers={"Authorization": token} if token else {},
            timeout=REQUEST_LIMIT_S,
            limits=httpx.Limits(max_connections=None),
            trust_env=False,  # a proxy for the internet knows no API server of this machine
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def get(self, path: str) -> Manifest:
        return await self._send("GET", path)

    async def create(self, path: str, body: Manifest) -> Manifest:
        return await self._send("POST", path, body)

    async def replace(self, path: str, body: Manifest) -> Manifest:
        return await self._send("PUT", path, body)

    async def merge(self, path: str, body: Manifest) -> Manifest:
        """A patch in which the conditions that others wrote stay."""
        return await self._send("PATCH", path, body, _STRATEGIC_MERGE)

    async def delete(self, path: str, body: Manifest) -> Manifest:
        return await self._send("DELETE", path, body)

    async def _send(
        self, method: str, path: str, body: Manifest | None = None, kind: str = "application/json"
    ) -> Manifest:
        content = None if body is None else json.dumps(body)
        try:
            answer = await self._http.request(
                method, path, content=content, headers={"Content-Type": kind}
            )
        except httpx.HTTPError as error:
            raise ApiError(f"{method} {path}: {type(error).__name__} {error}") from error
        if answer.is_error:
            raise ApiError(f"{method} {path}: {_message(answer)}", answer.status_code)
        return answer.json()

    async def watch(
        self, path: str, selector: Mapping[str, str] | None = None
    ) -> AsyncIterator[list[Manifest] | Manifest]:
        """The list of all objects first (also when the server forgot where we were), then events.

        Never ends: a server that restarts is asked again, and what was missed is in its list.
        """
        query = dict(selector or {})
        while True:
            try:
                if "resourceVersion" not in query:
                    listed = await self._list(path, query)
                    query["resourceVersion"] = listed["metadata"]["resourceVersion"]
                    yield listed["items"]
                async for event in self._events(path, query):
                    query["resourceVersion"] = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield event
            except ApiError as error:
                logger.info("%s; asked again", error)
                query.pop("resourceVersion", None)
                await asyncio.sleep(RETRY_S)

    async def _list(self, path: str, query: Mapping[str, str]) -> Manifest:
        return await self._send("GET", str(httpx.URL(path, params=dict(query))))

    async def _events(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Manifest]:
        params = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        limit = httpx.Timeout(REQUEST_LIMIT_S, read=WATCH_S + REQUEST_LIMIT_S)
        try:
            async with self._http.stream("GET", path, params=params, timeout=limit) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise ApiError(f"watch {path}: {_message(answer)}", answer.status_code)
                async for line in answer.aiter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError(f"watch {path}: {event['object'].get('message')}")
                    yield event
        except httpx.HTTPError as error:
            raise ApiError(f"watch {path}: {type(error).__name__} {error}") from error


def _message(answer: httpx.Response) -> str:
    try:
        return answer.json()["message"]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}"
