"""Serves the logs of containers to the API server, and so to `kubectl logs`.

What else a kubelet serves (exec, attach, port-forward) is refused: a service's address can be
reached from this machine without it.
"""

import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import parse_qs, urlsplit

from tools.cluster.certificates import KeyPair

HOST = "127.0.0.1"
POLL_S = 0.2
CHUNK_BYTES = 65536
KNOWN = {"follow", "previous", "tailLines", "limitBytes"}
PARTS = 4
"""containerLogs/NAMESPACE/POD/CONTAINER"""


class Logged(Protocol):
    """A pod, as far as its logs go."""

    def log_of(self, container: str, *, previous: bool) -> Path | None: ...

    def writes(self, container: str) -> bool: ...


Find = Callable[[str, str], Logged | None]


class LogServer:
    """Listens while it is entered; to clients of `authority` alone."""

    def __init__(self, find: Find, certificate: KeyPair, authority: Path) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(certificate.public, certificate.private)
        self._http = _Server(find, context)
        self.port = self._http.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, name="logs", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # who follows a log goes on as long as it likes

    def __init__(self, find: Find, context: ssl.SSLContext) -> None:
        self.find = find
        super().__init__((HOST, 0), _Handler)
        # The handshake is each client's own, in its thread.
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] # no other makes it

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        options = {key: values[-1] for key, values in parse_qs(url.query).items()}
        if parts[0] != "containerLogs" or len(parts) != PARTS:
            self._refuse(HTTPStatus.NOT_IMPLEMENTED, "only logs are served here")
        elif unknown := options.keys() - KNOWN:
            names = ", ".join(sorted(unknown))
            self._refuse(HTTPStatus.BAD_REQUEST, f"logs have no times: leave out {names}")
        else:
            self._logs(parts[1], parts[2], parts[3], options)

    do_POST = do_GET  # noqa: N815 # http.server's name; kubectl exec posts

    def _logs(self, namespace: str, name: str, container: str, options: dict[str, str]) -> None:
        pod = self.server.find(namespace, name)
        previous = options.get("previous") == "true"
        log = pod.log_of(container, previous=previous) if pod else None
        if pod is None or log is None or not log.exists():
            which = "previous terminated container" if previous else "container"
            self._refuse(HTTPStatus.BAD_REQUEST, f'{which} "{container}" in pod "{name}" not found')
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Connection", "close")
        self.end_headers()
        follow = options.get("follow") == "true" and not previous

        def goes_on() -> bool:
            return follow and pod.writes(container)

        left = int(options.get("limitBytes", 1 << 62))
        for chunk in read(log, options.get("tailLines"), goes_on):
            self.wfile.write(chunk[:left])
            left -= len(chunk)
            if left <= 0:
                return

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        body = message.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        try:
            super().handle()
        except (ssl.SSLError, ConnectionError):
            self.close_connection = True  # it has gone, or is nobody we know

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its name
        """Requests are nobody's news."""


def read(log: Path, tail: str | None, goes_on: Callable[[], bool]) -> Iterator[bytes]:
    """A log's last lines, or all, and then what is added while it `goes_on`."""
    with log.open("rb") as file:
        if tail is not None:
            yield b"".join(deque(file, maxlen=int(tail)))
        while True:
            more = goes_on()  # before reading: what is written last is read too
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
            if not more:
                return
            time.sleep(POLL_S)
