"""A bridge of this machine for the pods of one instance, and their addresses.

Instance N has the bridge rtN, the pods' range 10.244.N.0/24, whose first address is the bridge's,
and the services' range 10.245.N.0/24. A number is held by a lock that the kernel drops with the
process, so what a crash leaves behind is known as such and removed by the next claim.
"""

import fcntl
import ipaddress
import itertools
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import IO

LOCKS = Path("/run/lock/raytpu")
NUMBERS = range(1, 255)
COMMAND_LIMIT_S = 20


class NetworkError(Exception):
    """No network for pods can be had. One line that ends with the way out."""


@dataclass
class Network:
    """What one instance may use of this machine's network."""

    number: int
    _taken: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        # In turn, so that a new pod has no address that others still remember as a dead one's.
        self._turn = itertools.cycle([str(host) for host in self.pod_range.hosts()][1:])

    @property
    def bridge(self) -> str:
        return f"rt{self.number}"

    @property
    def pod_range(self) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network(f"10.244.{self.number}.0/24")

    @property
    def gateway(self) -> str:
        """The bridge's own address, on which this machine answers pods."""
        return str(self.pod_range[1])

    @property
    def service_cidr(self) -> str:
        return f"10.245.{self.number}.0/24"

    @classmethod
    @contextmanager
    def claim(cls) -> Iterator["Network"]:
        """Makes the bridge of the first free number, having removed what dead instances left."""
        LOCKS.mkdir(parents=True, exist_ok=True)
        _sweep()
        number, lock = _first_free()
        with lock:
            network = cls(number)
            _remove(number)  # of one that has died since the sweep
            try:
                network._make()
                yield network
            finally:
                _remove(network.number)

    def take(self) -> str:
        """An address for a pod. Raises NetworkError when all are taken."""
        size = self.pod_range.num_addresses - 3  # network, bridge, broadcast
        with self._lock:
            address = next((a for a in itertools.islice(self._turn, size) if self._free(a)), None)
            if address is None:
                raise NetworkError(
                    f"{self.bridge}: all {size} addresses are in use; delete pods, or start "
                    "another instance for the rest"
                )
            self._taken.add(address)
            return address

    def give_back(self, address: str) -> None:
        with self._lock:
            self._taken.discard(address)

    def _free(self, address: str) -> bool:
        return address not in self._taken

    def _make(self) -> None:
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.gateway}/{self.pod_range.prefixlen}", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")


def ip(*arguments: str, inside: int | None = None) -> str:
    """Runs `ip`, in the network of process `inside` if given. Raises NetworkError."""
    enter = [] if inside is None else ["nsenter", f"--net=/proc/{inside}/ns/net"]
    done = subprocess.run(
        [*enter, "ip", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_LIMIT_S,
    )
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"it exited with {done.returncode}"
        raise NetworkError(f"ip {' '.join(arguments)}: {said}; pods need root and bridges")
    return done.stdout


def _first_free() -> tuple[int, IO[bytes]]:
    for number in NUMBERS:
        if lock := _try_lock(number):
            return number, lock
    raise NetworkError(f"{LOCKS}: all {len(NUMBERS)} networks are in use; end an instance")


def _try_lock(number: int) -> IO[bytes] | None:
    """Python closes it in the programs that it starts: only this process holds it."""
    lock = (LOCKS / f"network-{number}").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _sweep() -> None:
    """Removes the bridges that no living process holds."""
    bridges = {link["ifname"] for link in json.loads(ip("-json", "link", "show", "type", "bridge"))}
    for number in NUMBERS:
        if f"rt{number}" in bridges and (lock := _try_lock(number)):
            with lock:
                _remove(number)


def _remove(number: int) -> None:
    """The bridge, and the ends of pods on it that are still there."""
    bridge = f"rt{number}"
    links = {link["ifname"]: link.get("master") for link in json.loads(ip("-json", "link"))}
    for name, master in links.items():
        if master == bridge:
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
    if bridge in links:
        ip("link", "del", bridge)
