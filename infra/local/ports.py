"""TCP ports on loopback: a free one, or the one the user asked for."""

import socket

import psutil

from infra.errors import LocalError

LOOPBACK = "127.0.0.1"


def choose(wanted: float | None, where: str) -> int:
    """The wanted port (a float when it comes through Pulumi), or a free one when None.

    Raises LocalError that names who holds the wanted port and the key `where` that asks for it.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, int(wanted or 0)))
        except OSError as error:
            fix = "choose another, or leave the key out for a free one"
            raise LocalError(f"{where}: port {wanted:.0f} {_fault(wanted, error)}; {fix}") from None
        return probe.getsockname()[1]


def _fault(port: float | None, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "is not allowed to this user"
    for connection in psutil.net_connections("tcp"):
        if connection.laddr and connection.laddr.port == port and connection.pid:
            name = psutil.Process(connection.pid).name()
            return f"is in use by process {connection.pid} ({name})"
    return f"cannot be used ({error.strerror})"
