"""etcd, the API server, the controller manager and the scheduler: the real ones, on loopback.

Each start makes keys, certificates and tokens anew. Who speaks to whom is known by the instance's
own authority or by a token, and roles decide what it may do, as in a cluster that others reach.
"""

import secrets
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Network
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Any, Self

import httpx
import yaml
from kubernetes import client
from kubernetes.config import new_client_from_config

from tools.cluster.certificates import Authority, KeyPair, signing_key
from tools.cluster.program import Program
from tools.go.build import find

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
PORTS = range(20000, 32000)
"""Below those that the kernel gives to connections, which could take one before we do."""
START_LIMIT_S = 240
REQUEST_LIMIT_S = 5
DOMAIN = "cluster.local"
ISSUER = f"https://kubernetes.default.svc.{DOMAIN}"
USERS = {
    # Who has a token, and in which group. Roles of these names are part of Kubernetes.
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}
CLIENT_LIMITS = ("--kube-api-qps=200", "--kube-api-burst=400")
"""Of requests a second. The defaults suit a server that many share; ours has one cluster."""


class ControlPlane:
    """Runs while it is entered; what it writes is below `folder`.

    `controllers` are those of the controller manager, as its option of that name takes them.

    Attributes:
        kubeconfig: For an administrator: the server, its authority, a token. Only ours to read.
        server: The address of the API server.
        authority: Signs for those whom the API server calls, such as a kubelet.
        programs: By name, for whoever watches or restarts them.
        api: A client with the administrator's rights.
    """

    def __init__(self, folder: Path, service_cidr: str, controllers: str = "*") -> None:
        self._folder, self._service_cidr = folder, IPv4Network(service_cidr)
        self._controllers = controllers
        self._secrets, self._logs = folder / "secrets", folder / "logs"
        self._tokens = {user: secrets.token_urlsafe(32) for user in USERS}
        self.port, self.etcd_port, self._etcd_peer_port = free_ports(3)
        self.server = f"https://{HOST}:{self.port}"
        self.kubeconfig = folder / "kubeconfig"
        self.programs: dict[str, Program] = {}
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._secrets.mkdir(mode=0o700, exist_ok=True)
        self.authority = Authority(self._secrets)
        with self._running:
            self._start()
            self._running = self._running.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    def _start(self) -> None:
        self._write_kubeconfig("admin", self.kubeconfig)
        self._run("etcd", self._etcd())
        server = self._run("kube-apiserver", self._api_server())
        self.api = new_client_from_config(str(self.kubeconfig))
        self._probe = self._running.enter_context(
            httpx.Client(
                base_url=self.server,
                verify=ssl.create_default_context(cafile=self.authority.path),
                timeout=REQUEST_LIMIT_S,
                trust_env=False,  # a proxy for the internet knows no server of this machine
            )
        )
        self._running.callback(self.api.close)
        server.wait(self.is_ready, "not ready", START_LIMIT_S)
        self._run("kube-controller-manager", self._controller_manager())
        self._run("kube-scheduler", self._scheduler())
        self.programs["kube-controller-manager"].wait(
            self._makes_accounts, "no service account in namespace default", START_LIMIT_S
        )

    def restart_api_server(self) -> None:
        """Ends the API server and starts it anew, as an upgrade of a zonal cluster does."""
        server = self.programs["kube-apiserver"]
        server.stop()
        server.start()
        server.wait(self.is_ready, "not ready", START_LIMIT_S)

    def is_ready(self) -> bool:
        """Whether it answers, and has made what each cluster has, such as roles."""
        bearer = {"Authorization": f"Bearer {self._tokens['admin']}"}
        try:
            answer = self._probe.get("/readyz", headers=bearer)
        except httpx.HTTPError:
            return False
        return answer.is_success

    def _makes_accounts(self) -> bool:
        """Whether pods can be made: each needs a service account."""
        core = client.CoreV1Api(self.api)
        try:
            core.read_namespaced_service_account(
                "default", "default", _request_timeout=REQUEST_LIMIT_S
            )
        except client.ApiException:
            return False
        return True

    def _run(self, name: str, options: Iterator[str]) -> Program:
        program = Program(name, [find(name, ROOT), *options], self._logs)
        self.programs[name] = self._running.enter_context(program)
        return program

    def _etcd(self) -> Iterator[str]:
        etcd = self.authority.issue("etcd", hosts=[HOST])
        url, peer = (f"https://{HOST}:{one}" for one in (self.etcd_port, self._etcd_peer_port))
        yield f"--data-dir={self._folder / 'etcd'}"
        yield f"--listen-client-urls={url}"
        yield f"--advertise-client-urls={url}"
        yield f"--listen-peer-urls={peer}"
        yield f"--initial-advertise-peer-urls={peer}"
        yield f"--initial-cluster=default={peer}"
        yield from _options(etcd, self.authority, "cert-file", "key-file", "trusted-ca-file")
        yield from _options(
            etcd, self.authority, "peer-cert-file", "peer-key-file", "peer-trusted-ca-file"
        )
        yield "--client-cert-auth"
        yield "--peer-client-cert-auth"
        yield "--unsafe-no-fsync"  # what it holds is not kept
        yield "--log-level=warn"

    def _api_server(self) -> Iterator[str]:
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", ISSUER[8:])
        own = self.authority.issue("api-server", hosts=[HOST, str(self._service_cidr[1]), *names])
        caller = self.authority.issue("kube-apiserver", group="system:masters")
        self._tokens_key = signing_key(self._secrets, "service-accounts")
        yield f"--bind-address={HOST}"
        yield f"--secure-port={self.port}"
        yield f"--tls-cert-file={own.public}"
        yield f"--tls-private-key-file={own.private}"
        yield f"--etcd-servers=https://{HOST}:{self.etcd_port}"
        yield from _options(caller, self.authority, "etcd-certfile", "etcd-keyfile", "etcd-cafile")
        yield from _options(
            caller,
            self.authority,
            "kubelet-client-certificate",
            "kubelet-client-key",
            "kubelet-certificate-authority",
        )
        yield "--kubelet-preferred-address-types=InternalIP"
        yield f"--client-ca-file={self.authority.path}"
        yield f"--token-auth-file={self._token_file()}"
        yield "--authorization-mode=Node,RBAC"
        yield f"--service-account-issuer={ISSUER}"
        yield f"--service-account-key-file={self._tokens_key.public}"
        yield f"--service-account-signing-key-file={self._tokens_key.private}"
        yield f"--service-cluster-ip-range={self._service_cidr}"
        # Loopback is no address for an endpoint; pods reach the server by the service's address.
        yield "--endpoint-reconciler-type=none"
        # As GKE: who asks for chips tolerates the taint of the nodes that have them.
        yield "--enable-admission-plugins=ExtendedResourceToleration"
        yield "--allow-privileged"
        yield "--profiling=false"

    def _controller_manager(self) -> Iterator[str]:
        yield from self._client("system:kube-controller-manager")
        yield f"--root-ca-file={self.authority.path}"
        yield f"--service-account-private-key-file={self._tokens_key.private}"
        yield "--use-service-account-credentials"
        yield f"--controllers={self._controllers}"
        yield "--profiling=false"

    def _scheduler(self) -> Iterator[str]:
        yield from self._client("system:kube-scheduler")
        yield "--profiling=false"

    def _client(self, user: str) -> Iterator[str]:
        """Of a program that only asks the API server, and is the only one of its kind."""
        kubeconfig = self._secrets / f"{user.removeprefix('system:')}.kubeconfig"
        self._write_kubeconfig(user, kubeconfig)
        yield f"--kubeconfig={kubeconfig}"
        yield "--leader-elect=false"
        yield "--secure-port=0"
        yield from CLIENT_LIMITS

    def _token_file(self) -> Path:
        lines = [f'{self._tokens[user]},{user},{user},"{group}"' for user, group in USERS.items()]
        return _write_secret(self._secrets / "tokens.csv", "\n".join(lines) + "\n")

    def _write_kubeconfig(self, user: str, file: Path) -> None:
        authority = self.authority.path.resolve()
        cluster = {"server": self.server, "certificate-authority": str(authority)}
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "raytpu", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "raytpu", "context": {"cluster": "raytpu", "user": user}}],
            "current-context": "raytpu",
        }
        _write_secret(file, yaml.safe_dump(content))


def _options(pair: KeyPair, authority: Authority, *names: str) -> Iterator[str]:
    """Options for a certificate, its key, and the authority that the other side must be of."""
    for name, path in zip(names, (pair.public, pair.private, authority.path), strict=True):
        yield f"--{name}={path}"


def _write_secret(file: Path, text: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(text)
    return file


def free_ports(count: int) -> list[int]:
    """Different ports of loopback on which nobody listens."""
    free: list[int] = []
    for port in SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)):
                free.append(port)
        if len(free) == count:
            break
    return free
