"""The cluster's names: CoreDNS with its kubernetes plugin, on the bridge's own address."""

from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tools.cluster.control_plane import DOMAIN, HOST, ROOT, free_ports
from tools.cluster.network import Network
from tools.cluster.program import Program
from tools.go.build import find

START_LIMIT_S = 60
REQUEST_LIMIT_S = 2
TTL_S = 5
"""Of an answer. Pods come and go while others wait for their names."""
NDOTS = 5
"""As a kubelet writes it: names with fewer dots are first looked for in the cluster."""


class Dns:
    """Answers while it is entered.

    Args:
        network: Whose bridge it listens on.
        kubeconfig: How it asks the API server for services and endpoints.
        folder: For its configuration and log.
    """

    def __init__(self, network: Network, kubeconfig: Path, folder: Path) -> None:
        self._network = network
        (port,) = free_ports(1)
        self._health = f"http://{HOST}:{port}/ready"
        self._corefile = folder / "Corefile"
        self._text = corefile(network.gateway, kubeconfig, f"{HOST}:{port}")
        command = [find("coredns", ROOT), "-conf", self._corefile]
        self.program = Program("coredns", command, folder / "logs")

    def __enter__(self) -> Self:
        self._corefile.parent.mkdir(parents=True, exist_ok=True)
        self._corefile.write_text(self._text)
        self.program.start()
        try:
            self.program.wait(self._is_ready, "not ready", START_LIMIT_S)
        except BaseException:
            self.program.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.program.stop()

    def resolv_conf(self, namespace: str) -> str:
        """What a pod of this namespace finds in /etc/resolv.conf."""
        search = f"{namespace}.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}"
        return f"search {search}\nnameserver {self._network.gateway}\noptions ndots:{NDOTS}\n"

    def _is_ready(self) -> bool:
        """Whether it has the list of all services and endpoints."""
        try:
            return httpx.get(self._health, timeout=REQUEST_LIMIT_S, trust_env=False).is_success
        except httpx.HTTPError:
            return False


def corefile(address: str, kubeconfig: Path, health: str) -> str:
    """The last zone is everything else: such names do not exist, as pods reach nothing outside.

    Without it the answer would be a refusal, on which many programs ask again for a long time.
    """
    return f"""\
.:53 {{
    bind {address}
    errors
    ready {health}
    kubernetes {DOMAIN} in-addr.arpa . {{
        kubeconfig {kubeconfig.resolve()}
        ttl {TTL_S}
    }}
}}
"""
