"""What every job's `main` does around its work: read JSON, reach Ray, end with a clear line."""

import logging
import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from workloads import versions
from workloads.contract import SliceContract
from workloads.data import storage
from workloads.errors import UserError, explain
from workloads.log import say
from workloads.settings import Settings

CONNECT_TIMEOUT_S = 30
LOOPBACK = ("127.0.0.1", "localhost")

AnySettings = TypeVar("AnySettings", bound=Settings)


def run(job: Callable[[], None]) -> int:
    """The exit code of `job`: 0, or 1 after an `error:` line for each fault."""
    try:
        job()
    except Exception as error:  # noqa: BLE001 # the outermost frame: all that is left is to tell
        for fault in explain(error):
            say(f"error: {fault}")
        return 1
    return 0


def settings(kind: type[AnySettings], text: str) -> AnySettings:
    """Raises UserError that names every wrong field."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        faults = [
            f"--settings: {'.'.join(map(str, fault['loc'])) or 'JSON'}: {fault['msg']}; "
            "correct it in the stack file"
            for fault in error.errors()
        ]
        raise UserError(*faults) from None


def contract(text: str) -> SliceContract:
    """Raises UserError for what is no contract."""
    try:
        return SliceContract.from_json(text)
    except ValueError as error:
        raise UserError(f"--slice: {error}; pass what the slice declaration gives") from None


def connect(runtime_env: dict[str, Any] | None = None) -> None:
    """Connects this process to the cluster in RAY_ADDRESS.

    Never looks for a cluster by itself: Ray would follow a stale note of an old one for minutes.
    Raises UserError if no cluster is named, or none answers.
    """
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        raise UserError("RAY_ADDRESS: not set; submit this as a Ray job, or set it yourself")
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise UserError(
            f"RAY_ADDRESS: {address!r} is not host:port; give the cluster's own address"
        )
    if host in LOOPBACK:
        # Read when Ray is imported. Without it Ray asks the machine's outer address instead, for
        # minutes; it was meant for a Mac.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray
    from ray.data import DataContext

    logging.getLogger("ray.data").setLevel(logging.WARNING)  # a plan and a bar for each pass
    try:
        # Ray itself would try for minutes before it says that nobody listens.
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
        ray.init(
            address=address,
            runtime_env=_with_variables(runtime_env or {}),
            logging_level=logging.WARNING,
        )
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"RAY_ADDRESS: no Ray cluster answers at {address} ({reason}); start it first"
        ) from error
    DataContext.get_current().enable_progress_bars = False


def _with_variables(runtime_env: dict[str, Any]) -> dict[str, Any]:
    ours = {**storage.ENVIRONMENT, **versions.environment()}
    variables = {**ours, **runtime_env.get("env_vars", {})}
    return {**runtime_env, "env_vars": variables}
