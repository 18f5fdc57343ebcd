"""Stands in for GKE's own webhooks: the API server asks it about new pods and RayClusters.

What it answers is in `tpu_admission` and `class_admission`. Where the real TPU webhook fails
rather than denies, it says to the user only that it failed, and so does this; the reason is in the
log.
"""

import base64
import contextlib
import json
import logging
import ssl
import threading
import time
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from kubernetes import client
from urllib3.exceptions import HTTPError

from tools.cluster import class_admission, tpu_admission
from tools.cluster.certificates import Authority
from tools.cluster.tpu_admission import CLUSTER, GROUP, Denied, Manifest, Refused, Slot
from tools.cluster.webhook_configuration import configurations

KINDS = {"/mutate": "Pod", "/class": "Pod", "/validate": "RayCluster"}
ADDRESS = "127.0.0.1"
SEEN_TIMEOUT_S = 1.0
"""As long as the real one waits for the pod that it numbered last."""
REQUEST_TIMEOUT_S = 30

log = logging.getLogger(__name__)


class Group(NamedTuple):
    """A worker group, within which pods are numbered."""

    namespace: str
    cluster: str
    name: str


class Numbering:
    """Numbers for pods that the operator does not number: one pod at a time, each number once.

    Between the answer and the pod's appearance in the API server nobody else knows its number, so
    the next pod waits until it is there, or something else has refused it.
    """

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._pods = client.CoreV1Api(api)
        self._lock = threading.Lock()
        self._last: tuple[Group, Slot] | None = None

    def next(self, pod: Manifest, namespace: str, *, dry_run: bool) -> Slot:
        """Raises Refused."""
        labels = pod["metadata"].get("labels", {})
        group = Group(namespace, labels.get(CLUSTER, ""), labels.get(GROUP, ""))
        with self._lock:
            if self._last is not None:
                self._wait_for(*self._last)
                self._last = None
            slot = tpu_admission.free_slot(pod, self._list(group))
            if not dry_run:
                self._last = group, slot
        return slot

    def _wait_for(self, group: Group, slot: Slot) -> None:
        deadline = time.monotonic() + SEEN_TIMEOUT_S
        while time.monotonic() < deadline:
            if any(tpu_admission.slot_of(pod) == slot for pod in self._list(group)):
                return
            time.sleep(0.02)

    def _list(self, group: Group) -> list[Manifest]:
        selector = f"{CLUSTER}={group.cluster},{GROUP}={group.name}"
        pods = self._pods.list_namespaced_pod(group.namespace, label_selector=selector)
        plain: Any = self._api.sanitize_for_serialization(pods.items)
        return plain


class Webhook:
    """Serves while it is entered, and is registered with the API server for as long.

    Args:
        api: The API server's, as an administrator.
        folder: For an authority of its own, and its certificate.
    """

    def __init__(self, api: client.ApiClient, folder: Path) -> None:
        self._api = client.AdmissionregistrationV1Api(api)
        self._folder = folder
        self._numbering = Numbering(api)

    def __enter__(self) -> Self:
        authority = Authority(self._folder)
        pair = authority.issue("webhook", hosts=[ADDRESS])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.public, pair.private)
        self._server = _Server(context, self._numbering)
        threading.Thread(target=self._server.serve_forever, daemon=True, name="webhook").start()
        try:
            self._register(self._server.server_port, authority.path.read_bytes())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        try:
            with contextlib.suppress(HTTPError):  # a server that is gone asks nobody
                self._unregister()
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _register(self, port: int, authority: bytes) -> None:
        self._unregister()  # of a run that crashed: its port is another's now
        create = {
            "MutatingWebhookConfiguration": self._api.create_mutating_webhook_configuration,
            "ValidatingWebhookConfiguration": self._api.create_validating_webhook_configuration,
        }
        for configuration in configurations(f"https://{ADDRESS}:{port}", authority):
            create[configuration["kind"]](configuration)

    def _unregister(self) -> None:
        delete = {
            "MutatingWebhookConfiguration": self._api.delete_mutating_webhook_configuration,
            "ValidatingWebhookConfiguration": self._api.delete_validating_webhook_configuration,
        }
        for configuration in configurations("https://", b""):
            try:
                delete[configuration["kind"]](configuration["metadata"]["name"])
            except client.ApiException as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise


def review(path: str, request: Manifest, numbering: Numbering) -> Manifest:
    """The answer to one admission request; raises Refused."""
    answer: Manifest = {"uid": request["uid"], "allowed": True}
    try:
        patch = _patch(path, request, numbering)
    except Denied as denial:
        return {**answer, "allowed": False, "status": {"message": str(denial)}}
    if not patch:
        return answer
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    return {**answer, "patchType": "JSONPatch", "patch": encoded}


def _patch(path: str, request: Manifest, numbering: Numbering) -> list[Manifest]:
    asked = request["object"]
    match path:
        case "/validate":
            tpu_admission.validate(asked)
            return []
        case "/class":
            return class_admission.mutate(asked)
        case _ if not tpu_admission.asks_for_chips(asked):
            return []
    slot = tpu_admission.numbered(asked)
    if slot is None:
        dry_run = request.get("dryRun", False)
        slot = numbering.next(asked, request["namespace"], dry_run=dry_run)
    return tpu_admission.mutate(asked, slot)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context: ssl.SSLContext, numbering: Numbering) -> None:
        self._context = context
        super().__init__((ADDRESS, 0), partial(_Handler, numbering))

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the connection's own thread: a client that says nothing holds up nobody else.
        request.settimeout(REQUEST_TIMEOUT_S)
        try:
            with self._context.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)
        except (ssl.SSLError, TimeoutError, ConnectionError) as error:
            log.info("webhook: %s hung up (%s)", client_address, error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_TIMEOUT_S

    def __init__(self, numbering: Numbering, *arguments: Any) -> None:
        self._numbering = numbering
        super().__init__(*arguments)  # which answers all requests of the connection

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = urlsplit(self.path).path  # without the query, in which the server says its timeout
        kind = KINDS.get(path)
        if kind is None or body["request"]["kind"]["kind"] != kind:
            self._send(HTTPStatus.BAD_REQUEST, b"Invalid Kind")
            return
        try:
            response = review(path, body["request"], self._numbering)
        except Refused as refusal:
            verb = path.removeprefix("/")
            log.warning("webhook: failed to %s %s: %s", verb, body["request"].get("name"), refusal)
            self._send(HTTPStatus.FORBIDDEN, f"Failed to {verb} {kind}".encode())
            return
        self._send(HTTPStatus.OK, json.dumps({**body, "response": response}).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the base's name
        log.debug(format, *args)

    def _send(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header(
            "Content-Type", "application/json" if status == HTTPStatus.OK else "text/plain"
        )
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
