"""JAX keeps what it compiled in a bucket: the pods are told so, and nothing else need be done."""

import subprocess
import sys
import textwrap

PROGRAM = textwrap.dedent(
    """
    import os

    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    class Bucket(MemoryFileSystem):
        protocol = ("gs", "gcs")
        store = {}
        pseudo_dirs = [""]

        def __init__(self, **options):
            super().__init__()

    for name in Bucket.protocol:
        fsspec.register_implementation(name, Bucket, clobber=True)
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": "gs://cache/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    import jax

    found = []
    jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
    step = jax.jit(lambda x: x @ x.T)
    example = jax.numpy.ones((4, 4))
    step(example)
    first = found.count("/jax/compilation_cache/cache_hits")
    kept = [name for name in Bucket.store if "jax/jit" in name and name.endswith("-cache")]
    jax.clear_caches()
    step(example)
    print(first, bool(kept), found.count("/jax/compilation_cache/cache_hits") > first)
    """
)


def test_a_program_compiled_once_is_read_from_the_bucket():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "True", "True"], done.stderr
