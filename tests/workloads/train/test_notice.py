"""A stop notice that reaches one host: all hosts save the same step and end with it."""

import os
import socket
import subprocess
import sys
import textwrap

import pytest

from workloads.train.checkpoints import latest_step

HOSTS, TOLD, STEPS = 2, 5, 2000

PROGRAM = textwrap.dedent(
    """
    import sys, time
    from types import SimpleNamespace

    import jax, jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec as P

    port, host, url, told, steps = sys.argv[1], *map(eval, sys.argv[2:])
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, host)

    from workloads.train import notice
    from workloads.train.checkpoints import Checkpoints
    from workloads.train.step import State

    context = SimpleNamespace(preemption_info=None)
    notice.get_train_context = lambda: SimpleNamespace(preemption_context=context)

    mesh = jax.make_mesh((4,), ("data",), (jax.sharding.AxisType.Auto,))
    cut = NamedSharding(mesh, P("data"))
    @jax.jit
    def train(x):  # every device's next value needs all devices, as a step's gradients do
        return x + jax.lax.with_sharding_constraint(x.mean() * 0 + 1, NamedSharding(mesh, P()))

    x = jax.jit(lambda: jnp.zeros(4), out_shardings=cut)()
    stop = notice.StopNotice()
    with Checkpoints(url, keep=1) as checkpoints:
        for step in range(1, steps + 1):
            x = train(x)
            x.block_until_ready()
            if host == 1 and step >= told:
                context.preemption_info = "going"
            time.sleep(0.01)
            if stop.ends(step):
                break
        checkpoints.save(step, State({"x": x}, {}))
    print("ended", step, float(x.addressable_shards[0].data[0]))
    """
)


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.timeout(280)
def test_all_hosts_save_one_step_after_one_of_them_is_told(port, tmp_path):
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    url = str(tmp_path / "checkpoints")
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, port, str(host), repr(url), str(TOLD), str(STEPS)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for host in range(HOSTS)
    ]
    try:
        told = [host.communicate(timeout=270)[0] for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    (line,) = {text.splitlines()[-1] for text in told}  # both say the same
    ended, step, value = line.split()
    assert ended == "ended"
    assert TOLD < int(step) < STEPS
    assert float(value) == int(step)
    assert latest_step(url) == int(step)
