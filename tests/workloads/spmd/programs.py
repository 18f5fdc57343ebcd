"""Programs as a user has them: what tests run on the hosts of a slice."""

# ruff: noqa: T201, ARG001 - programs as users write them

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path


def total(context, *numbers):
    """The sum, over all hosts, of what each has."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils

    mine = jnp.array([sum(map(int, numbers)) + jax.process_index()])
    gathered = multihost_utils.process_allgather(mine)
    print(f"{jax.device_count()} devices on {jax.process_count()} hosts")
    return {"total": int(gathered.sum()), "hosts": context.slice.hosts, "attempt": context.attempt}


def fails_on_one_host(context, number):
    """The others are in a collective that it never joins."""
    import jax
    from jax.experimental import multihost_utils

    if jax.process_index() == int(number):
        raise ValueError(f"no batch left on process {number}")
    multihost_utils.sync_global_devices("all but one")


def fails_at_first(context):
    """Keeps a file, as a program keeps checkpoints."""
    kept = Path(context.output) / "kept"
    if context.attempt == 1:
        kept.parent.mkdir(exist_ok=True, parents=True)
        kept.write_text("step 7")
        raise RuntimeError("the storage was busy")
    return kept.read_text()


def is_aborted(context):
    """As libtpu does it."""
    os.kill(os.getpid(), signal.SIGABRT)


def returns_a_set(context):
    return {1, 2}


def waits(context):
    """Until it is ended from without."""
    print("waiting", flush=True)
    Path(context.output, f"pid-{os.getpid()}").touch()
    time.sleep(3600)


def script():
    """What people run by hand on each host."""
    import jax

    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    steps = parser.parse_args().steps
    jax.distributed.initialize()
    told = {"devices": jax.device_count(), "steps": steps, "flag": os.environ.get("MY_FLAG")}
    print(json.dumps(told))
    sys.exit(0)


if __name__ == "__main__":
    script()
