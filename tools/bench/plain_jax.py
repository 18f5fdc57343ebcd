"""The training step of the local stack in plain multi-process JAX: what Ray is compared with.

The same step, mesh, batch and corpus as the train workload, one process a host and as many CPU
devices as JAX would see; rows come from memory, and nothing is saved or evaluated.

    python tools/bench/plain_jax.py SLICE_JSON SETTINGS_JSON CORPUS STEPS

Prints the median tokens a second as its last line.
"""

import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from workloads.contract import SliceContract
from workloads.settings import TrainSettings

LIMIT_S = 900


def main(argv: list[str]) -> None:
    if len(argv) == 4:  # noqa: PLR2004 # the four arguments of the usage
        _start_hosts(argv)
    else:
        _host(argv)


def _start_hosts(argv: list[str]) -> None:
    tpu = SliceContract.from_json(argv[0])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    devices = f"--xla_force_host_platform_device_count={tpu.devices_per_host}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": devices}
    hosts = [
        subprocess.Popen([sys.executable, __file__, *argv, port, str(host)], env=environment)
        for host in range(tpu.hosts)
    ]
    if any(host.wait(LIMIT_S) for host in hosts):
        sys.exit("a process of the plain run failed")


def _host(argv: list[str]) -> None:
    import jax
    import numpy as np
    import pyarrow.parquet as pq

    from workloads.data import corpus as corpora
    from workloads.model import sharding
    from workloads.model.config import ModelConfig
    from workloads.train.step import make_trainer

    tpu, settings = SliceContract.from_json(argv[0]), TrainSettings.model_validate_json(argv[1])
    steps, port, host = int(argv[3]), argv[4], int(argv[5])
    jax.distributed.initialize(f"127.0.0.1:{port}", tpu.hosts, host)
    corpus = corpora.load(argv[2])
    files = [Path(argv[2], part.file) for part in corpus.train.parts]
    columns = [pq.read_table(file).column("tokens").combine_chunks() for file in files]
    rows = np.concatenate([c.flatten().to_numpy().reshape(len(c), -1) for c in columns])
    config = ModelConfig.of(
        settings.model,
        vocab_size=corpus.vocab_size,
        max_position_embeddings=corpus.sequence_length,
    )
    trainer = make_trainer(settings, config, sharding.make_mesh(settings.mesh))
    state = trainer.init()
    rates: list[float] = []
    batch = settings.global_batch
    started = time.monotonic()
    for step in range(1, steps + 1):
        chosen = np.arange(step * batch, (step + 1) * batch) % len(rows)
        tokens = jax.make_array_from_callback(
            (batch, rows.shape[1]), trainer.batch, lambda index, c=chosen: rows[c][index]
        )
        state, loss = trainer.train(state, tokens)
        if step == 1 or step % settings.log_every == 0:
            loss.block_until_ready()
            now = time.monotonic()
            if step > 1:
                rates.append(settings.log_every * batch * corpus.sequence_length / (now - started))
            started = now
    if host == 0:
        sys.stdout.write(f"{statistics.median(rates[1:]):.0f}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
