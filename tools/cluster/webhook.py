"""Stands in for GKE's TPU webhook: the API server asks it about new pods and RayClusters.

What it answers is `tpu_admission`. Where the real one fails rather than denies, it says to the user
only that it failed, and so does this; the reason is in the log.
"""

import base64
import datetime as dt
import ipaddress
import json
import logging
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubernetes import client

from tools.cluster import tpu_admission
from tools.cluster.tpu_admission import CLUSTER, GROUP, Denied, Manifest, Refused, Slot

MUTATING, VALIDATING = "kuberay-tpu-mutating-webhook-cfg", "kuberay-tpu-validating-webhook-cfg"
NAMES = {
    "mutate": "kuberay-tpu-webhook.ray-system.svc",
    "validate": "raycluster-kuberay-tpu-webhook.ray-system.svc",
}
"""By which the API server names the webhook to a user, as with the chart's own names."""
KINDS = {"/mutate": "Pod", "/validate": "RayCluster"}
ADDRESS = "127.0.0.1"
SEEN_TIMEOUT_S = 1.0
"""As long as the real one waits for the pod that it numbered last."""
REQUEST_TIMEOUT_S = 30
VALID_FOR = dt.timedelta(days=30)

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
        return [self._api.sanitize_for_serialization(pod) for pod in pods.items]


class Webhook:
    """Serves while it is entered, and is registered with the API server for as long.

    Args:
        api: The API server's, as an administrator.
        folder: For its certificate and key.
    """

    def __init__(self, api: client.ApiClient, folder: Path) -> None:
        self._configurations = client.AdmissionregistrationV1Api(api)
        self._folder = folder
        self._numbering = Numbering(api)
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        certificate, key = self._folder / "webhook.crt", self._folder / "webhook.key"
        _write_certificate(certificate, key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = _Server(context, self._numbering)
        threading.Thread(target=self._server.serve_forever, daemon=True, name="webhook").start()
        self._register(self._server.server_port, certificate.read_bytes())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._unregister()
        finally:
            if self._server is not None:
                self._server.shutdown()
                self._server.server_close()

    def _register(self, port: int, authority: bytes) -> None:
        self._unregister()  # of a run that crashed: its port is another's now
        mutating, validating = configurations(port, authority)
        self._configurations.create_mutating_webhook_configuration(mutating)
        self._configurations.create_validating_webhook_configuration(validating)

    def _unregister(self) -> None:
        for delete, name in (
            (self._configurations.delete_mutating_webhook_configuration, MUTATING),
            (self._configurations.delete_validating_webhook_configuration, VALIDATING),
        ):
            try:
                delete(name)
            except client.ApiException as error:
                if error.status != 404:  # noqa: PLR2004 # HTTP's own number
                    raise


def configurations(port: int, authority: bytes) -> tuple[Manifest, Manifest]:
    """What is asked about, as in the chart of the real webhook: failures keep the object out."""

    def configuration(kind: str, name: str, path: str, webhook: Manifest) -> Manifest:
        bundle = base64.b64encode(authority).decode()
        outside = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
        common = {
            "name": NAMES[path],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "namespaceSelector": {
                "matchExpressions": [{**outside, "values": ["kube-system", "kube-node-lease"]}]
            },
            "clientConfig": {"url": f"https://{ADDRESS}:{port}/{path}", "caBundle": bundle},
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [{**common, **webhook}],
        }

    def creation(group: str, version: str, resource: str) -> list[Manifest]:
        return [
            {
                "operations": ["CREATE"],
                "apiGroups": [group],
                "apiVersions": [version],
                "resources": [resource],
                "scope": "Namespaced",
            }
        ]

    pods = {
        "rules": creation("", "v1", "pods"),
        "objectSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay"}},
    }
    clusters = {"rules": creation("ray.io", "*", "rayclusters")}
    return (
        configuration("MutatingWebhookConfiguration", MUTATING, "mutate", pods),
        configuration("ValidatingWebhookConfiguration", VALIDATING, "validate", clusters),
    )


def review(path: str, request: Manifest, numbering: Numbering) -> Manifest:
    """The answer to one admission request; raises Refused."""
    answer: Manifest = {"uid": request["uid"], "allowed": True}
    if path == "/validate":
        try:
            tpu_admission.validate(request["object"])
        except Denied as denial:
            return {**answer, "allowed": False, "status": {"message": str(denial)}}
        return answer
    if patch := _patch(request, numbering):
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        return {**answer, "patchType": "JSONPatch", "patch": encoded}
    return answer


def _patch(request: Manifest, numbering: Numbering) -> list[Manifest]:
    pod = request["object"]
    if not tpu_admission.asks_for_chips(pod):
        return []
    slot = tpu_admission.numbered(pod)
    if slot is None:
        dry_run = request.get("dryRun", False)
        slot = numbering.next(pod, request["namespace"], dry_run=dry_run)
    return tpu_admission.mutate(pod, slot)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context: ssl.SSLContext, numbering: Numbering) -> None:
        self._context = context
        self.numbering = numbering
        super().__init__((ADDRESS, 0), _Handler)

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
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = KINDS.get(self.path)
        if kind is None or body["request"]["kind"]["kind"] != kind:
            self._send(400, b"Invalid Kind")
            return
        try:
            response = review(self.path, body["request"], self.server.numbering)
        except Refused as refusal:
            verb = self.path.removeprefix("/")
            log.warning("webhook: failed to %s %s: %s", verb, body["request"].get("name"), refusal)
            self._send(403, f"Failed to {verb} {kind}".encode())
            return
        self._send(200, json.dumps({**body, "response": response}).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the base's name
        log.debug(format, *args)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status == 200 else "text/plain")  # noqa: PLR2004 # as above
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _write_certificate(certificate: Path, key: Path) -> None:
    """A certificate for the webhook's address that is its own authority; nobody keeps its key."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kuberay-tpu-webhook")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address(ADDRESS))
    signed = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.touch(mode=0o600)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
