"""What a dynamic provider's process knows of the engine that runs it.

Pulumi's dynamic providers have no channel for progress, learn nothing of a cancelled run, and are
left behind when the engine is killed. The engine's address is their one argument.
"""

import functools
import os
import sys
import threading
import time
from pathlib import Path

import grpc
import psutil
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from infra.errors import LocalError

INTERRUPT_VARIABLE = "RAYTPU_INTERRUPT_FILE"
"""Set by tools/run: a path that exists as soon as the user has interrupted the run."""

_WATCH_S = 1.0


def report(urn: str, line: str) -> None:
    """Shows a line on the resource's row of `pulumi up`, as it happens."""
    stub = _engine()
    if stub is None:
        return
    request = engine_pb2.LogRequest(severity=engine_pb2.INFO, message=line, urn=urn, ephemeral=True)
    try:
        stub.Log(request, timeout=5)  # pyright: ignore[reportUnknownMemberType] # generated code
    except grpc.RpcError:
        return  # progress is a courtesy: never a reason to fail


def check_cancelled() -> None:
    """Raises LocalError once the user has pressed Ctrl-C.

    The engine then waits for each resource in the making and tells the provider nothing. tools/run
    makes a file of the keypress; without it, a signal to the whole group ends the main thread.
    """
    file = os.environ.get(INTERRUPT_VARIABLE)
    if (file and Path(file).exists()) or not threading.main_thread().is_alive():
        raise LocalError("interrupted; run `up` again to go on, or `destroy` to end all")


def end_with_engine() -> None:
    """Ends this process when the engine that started it is gone, even if that was killed."""
    if _is_provider() and not any(t.name == _end_when_gone.__name__ for t in threading.enumerate()):
        ancestors = psutil.Process().parents()
        engine = next((p for p in ancestors if p.name().startswith("pulumi")), None)
        if engine is not None:
            threading.Thread(
                target=_end_when_gone, args=(engine,), name=_end_when_gone.__name__, daemon=True
            ).start()


def _end_when_gone(engine: psutil.Process) -> None:
    while engine.is_running() and engine.status() != psutil.STATUS_ZOMBIE:
        time.sleep(_WATCH_S)
    os._exit(1)


def _is_provider() -> bool:
    """Whether this process runs dynamic providers, and not the program or a test."""
    return Path(sys.argv[0]).parts[-3:] == ("pulumi", "dynamic", "__main__.py")


@functools.cache
def _engine() -> engine_pb2_grpc.EngineStub | None:
    if not _is_provider():
        return None
    return engine_pb2_grpc.EngineStub(grpc.insecure_channel(sys.argv[1]))
