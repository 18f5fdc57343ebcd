"""Programs that JAX has compiled, kept for the next start of a server.

JAX reads and writes them itself, where JAX_COMPILATION_CACHE_DIR says, which on Kubernetes is the
stack's bucket. Without the variable it is a folder of this node. Of several hosts the first one
alone writes (jax/_src/compiler.py), so the others find programs only in a place that all share.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from workloads.log import say

_EVENTS = "/jax/compilation_cache/"
_ASKED, _FOUND = f"{_EVENTS}compile_requests_use_cache", f"{_EVENTS}cache_hits"


def keep() -> None:
    """To be called before anything is compiled, as JAX looks once whether it has a cache."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(_of_this_node()))
    # JAX leaves out what took less than a second, and a server starts with dozens of those.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


@contextmanager
def told() -> Iterator[None]:
    """Says how many programs the block compiled, and how many it found."""
    events = Counter[str]()

    def count(event: str, **_: str | int) -> None:
        events[event] += 1

    began = time.monotonic()
    jax.monitoring.register_event_listener(count)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_listener(count)
    found, compiled = events[_FOUND], events[_ASKED] - events[_FOUND]
    folder = jax.config.values["jax_compilation_cache_dir"]
    spent = f"{time.monotonic() - began:.1f} s"
    say(f"host {jax.process_index()}: {compiled} programs compiled, {found} of {folder}, {spent}")


def _of_this_node() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "raytpu" / "jax"
