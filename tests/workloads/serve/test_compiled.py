"""A server's second start, in a process of its own, as its first was."""

import json
import os
import subprocess
import sys

PROGRAM = """
import json, sys
from pathlib import Path
from workloads.serve import batch
from workloads.serve.completion import Sampling
from workloads.settings import MeshSettings, ServeSettings

settings = ServeSettings(max_sequence_length=64, max_batch=2, dtype="float32")
one = batch.load(Path(sys.argv[1]), settings, MeshSettings(tensor=4))
one.warm_up()
first = one.start(0, [5, 9, 200], Sampling(max_tokens=4, temperature=0))
print(json.dumps([first, *(one.step()[0] for _ in range(3))]))
"""


def started(folder, home):
    """What it says, and the first tokens that it makes."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("JAX_")}
    four = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(
        command,
        env=kept | four | {"XDG_CACHE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    said, tokens = done.stdout.splitlines()[-2:]
    return said, json.loads(tokens)


def test_a_second_start_compiles_nothing_and_answers_the_same(tiny_folder, tmp_path):
    first, tokens = started(tiny_folder, tmp_path)
    assert first.startswith("raytpu | host 0: ")
    assert f", 0 of {tmp_path}/raytpu/jax, " in first
    second, again = started(tiny_folder, tmp_path)
    assert second.startswith("raytpu | host 0: 0 programs compiled, ")
    assert again == tokens
