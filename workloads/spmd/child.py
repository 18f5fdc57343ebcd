"""One host's part of a program: `python -m workloads.spmd.child OUTCOME`, with a Part on its input.

A process of its own, since a program may set variables before JAX is imported, take the main thread
for its signals, or be aborted by libtpu: the actor that started it lives on and tells how it ended.
"""

import ctypes
import importlib
import os
import pickle
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from workloads import slices, versions
from workloads.errors import UserError
from workloads.slice_group import JOIN_TIMEOUT_S, Rendezvous
from workloads.spmd.program import Outcome, Part, as_json, form

END_TIMEOUT_S = 24 * 3600
"""For hosts that have ended to wait for the last, which may write for long. A job's deadline is
sooner, and a host that dies is noticed by its heartbeat."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Ends at once on an error, without waiting for the other hosts as JAX would do at exit."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # it died before
    target = Path(sys.argv[1])
    part: Part = pickle.load(sys.stdin.buffer)  # noqa: S301 # of the actor that started this
    try:
        outcome = Outcome(returned=_run(part))
    except Exception as error:  # noqa: BLE001 # a program may raise anything
        outcome = _failed(error)
    target.write_text(outcome.model_dump_json())
    if outcome.error:
        sys.stdout.flush()
        os._exit(1)


def _run(part: Part) -> Any:
    versions.check_host()
    os.environ.setdefault("JAX_PLATFORMS", "tpu")  # JAX would take a CPU where it finds no TPU
    if form(part.program) == "function":
        return _call(part)
    _announce(part.place)
    sys.argv = [part.program, *part.args]
    if form(part.program) == "file":
        runpy.run_path(part.program, run_name="__main__")
    else:
        runpy.run_module(part.program, run_name="__main__", alter_sys=True)
    return None


def _call(part: Part) -> Any:
    import jax

    place = part.place
    jax.distributed.initialize(
        place.coordinator,
        place.processes,
        place.process,
        initialization_timeout=JOIN_TIMEOUT_S,
        shutdown_timeout_seconds=END_TIMEOUT_S,
    )
    slices.check_devices(part.context.slice)
    function = _function(part.program)
    returned = function(part.context, *part.args)
    return as_json(part.program, returned) if place.process == 0 else None


def _function(program: str) -> Any:
    name, _, attribute = program.partition(":")
    try:
        return getattr(importlib.import_module(name), attribute)
    except AttributeError:
        raise UserError(f"program: {name} has no {attribute}; correct the name") from None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the module imports
        raise UserError(
            f"program: there is no module {error.name} on the hosts; correct the name, or bring it "
            "there by code, or in the image"
        ) from None


def _announce(place: Rendezvous) -> None:
    """So that the script's own `jax.distributed.initialize()` finds the others by itself.

    JAX asks the environments it knows, first of them this one. It knows GKE's too, but not the
    order of the slices of one Ray cluster, and no simulated host.
    """
    from jax._src.clusters import ClusterEnv

    class RayHosts(ClusterEnv):
        name = "raytpu"

        @classmethod
        def is_env_present(cls) -> bool:
            return True

        @classmethod
        def get_coordinator_address(
            cls, timeout_secs: int | None, override_coordinator_port: str | None
        ) -> str:
            del timeout_secs, override_coordinator_port
            return place.coordinator

        @classmethod
        def get_process_count(cls) -> int:
            return place.processes

        @classmethod
        def get_process_id(cls) -> int:
            return place.process

    known = ClusterEnv._cluster_types  # noqa: SLF001 # JAX has no other way to come first
    known.insert(0, known.pop(known.index(RayHosts)))


def _failed(error: Exception) -> Outcome:
    if isinstance(error, UserError):
        return Outcome(error=error.faults[0], faults=error.faults)
    traceback.print_exc()
    first_line = next(iter(str(error).splitlines()), "no message")
    return Outcome(error=f"{type(error).__name__}: {first_line}")


if __name__ == "__main__":
    main()
