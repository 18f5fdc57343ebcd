"""Ray's REST interfaces, as KubeRay uses them: nodes, Jobs and Serve of one dashboard."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from infra.errors import LocalError

_REQUEST_TIMEOUT_S = 30.0
_POLL_S = 0.5

Json = dict[str, Any]

ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
"""States of a job that it does not leave."""


class RayApi:
    """The dashboard at `url`, e.g. "http://127.0.0.1:8265". Raises LocalError when it is gone."""

    def __init__(self, url: str) -> None:
        self.url = url
        # trust_env: a proxy set for the internet must not be asked for a loopback address.
        self._http = httpx.Client(base_url=url, timeout=_REQUEST_TIMEOUT_S, trust_env=False)

    def wait_ready(self, timeout_s: float) -> None:
        """Until the Jobs interface answers."""
        self.wait_for(
            lambda: self._try("GET", "/api/jobs/") is not None,
            timeout_s,
            f"the dashboard at {self.url}",
        )

    def wait_for(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                raise LocalError(
                    f"waited {timeout_s:.0f} s for {what}; look at its log, then run `up` again"
                )
            time.sleep(_POLL_S)

    def worker_ids(self, slice_name: str) -> list[int]:
        """TPU worker ids of the living hosts that carry the slice's name, sorted."""
        reply = self._try("GET", "/api/v0/nodes?detail=true&limit=10000")
        nodes: list[Json] = reply["data"]["result"]["result"] if reply else []
        labels: list[Json] = [n.get("labels") or {} for n in nodes if n["state"] == "ALIVE"]
        mine = [label for label in labels if label.get("ray.io/tpu-slice-name") == slice_name]
        return sorted(int(label["ray.io/tpu-worker-id"]) for label in mine)

    def submit(self, job_id: str, entrypoint: str) -> None:
        self._request("POST", "/api/jobs/", {"submission_id": job_id, "entrypoint": entrypoint})

    def jobs(self) -> list[Json]:
        return self._request("GET", "/api/jobs/")

    def job(self, job_id: str) -> Json | None:
        """Its status and message; None when this cluster has no such job."""
        return self._request("GET", f"/api/jobs/{quote(job_id)}", missing_ok=True)

    def stop(self, job_id: str) -> None:
        self._request("POST", f"/api/jobs/{quote(job_id)}/stop", missing_ok=True)

    def job_log(self, job_id: str, poll_s: float) -> Iterator[str | None]:
        """The job's log as it grows, from the start; None each `poll_s` in which nothing came.

        Ends when the job has ended. A connection that breaks before is made anew.
        """
        seen = 0
        while True:
            skip = seen
            for chunk in self._tail(job_id, poll_s):
                if chunk is None:
                    yield None
                    continue
                yield from filter(None, [chunk[skip:]])
                seen += max(len(chunk) - skip, 0)
                skip = max(skip - len(chunk), 0)
            job = self.job(job_id)
            if job is None or job["status"] in ENDED:
                return
            time.sleep(poll_s)

    def _tail(self, job_id: str, poll_s: float) -> Iterator[str | None]:
        url = f"ws{self.url.removeprefix('http')}/api/jobs/{quote(job_id)}/logs/tail"
        # Uncompressed: with it Ray's dashboard closes the connection at the first message.
        # No keep-alive: on a busy machine its answer comes too late.
        options = {"proxy": None, "compression": None, "max_size": None, "ping_interval": None}
        try:
            with connect(url, open_timeout=_REQUEST_TIMEOUT_S, **options) as socket:
                while True:
                    try:
                        yield str(socket.recv(poll_s))
                    except TimeoutError:
                        yield None
        except ConnectionClosed:
            return
        except OSError as error:
            raise _gone(self.url, error) from None

    def applications(self) -> Json:
        """Serve's applications by name, each with its status and message."""
        return self._serve().get("applications", {})

    def serve_port(self) -> int | None:
        """The port on which Serve listens; None when Serve does not run."""
        options: Json | None = self._serve().get("http_options")
        return options["port"] if options else None

    def _serve(self) -> Json:
        return self._request("GET", "/api/serve/applications/")

    def deploy(self, config: Mapping[str, Any]) -> None:
        self._request("PUT", "/api/serve/applications/", config)

    def delete_applications(self) -> None:
        """Ends Serve itself, and its port, with all of its applications."""
        self._request("DELETE", "/api/serve/applications/")

    def _try(self, method: str, path: str) -> Json | None:
        try:
            return self._request(method, path)
        except LocalError:
            return None

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        missing_ok: bool = False,
    ) -> Any:
        try:
            reply = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise _gone(self.url, error) from None
        if missing_ok and reply.status_code == 404:  # noqa: PLR2004
            return None
        if reply.is_error:
            lines = reply.text.strip().splitlines() or ["(no reason given)"]
            raise LocalError(f"Ray refused {method} {path} ({reply.status_code}): {lines[-1]}")
        return reply.json() if "json" in reply.headers.get("content-type", "") else {}


def _gone(url: str, error: Exception) -> LocalError:
    what = str(error) or type(error).__name__
    return LocalError(f"Ray does not answer at {url}: {what}; run `pulumi refresh`, then `up`")
