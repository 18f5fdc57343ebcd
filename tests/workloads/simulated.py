"""A simulated slice on real raylets, and jobs on it: what tests of whole workloads share."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from functools import cache, partial
from pathlib import Path

import psutil
import pytest
from ray._common.utils import get_default_ray_temp_dir
from ray.cluster_utils import Cluster

from workloads.contract import SliceContract

ATTEMPTS = 4
CONTRACT = SliceContract(
    name="drill",
    slices=1,
    generation="v5p",
    machine_type="ct5p-hightpu-4t",
    topology="2x2x2",
    hosts=2,
    chips_per_host=4,
    devices_per_chip=1,
    hbm_gib_per_chip=95,
    bf16_tflops_per_chip=459,
    accelerator_type="TPU-V5P",
    pod_type="v5p-16",
)

ONE_HOST = SliceContract(
    name="chat",
    slices=1,
    generation="v6e",
    machine_type="ct6e-standard-4t",
    topology="2x2",
    hosts=1,
    chips_per_host=4,
    devices_per_chip=1,
    hbm_gib_per_chip=32,
    bf16_tflops_per_chip=918,
    accelerator_type="TPU-V6E",
    pod_type="v6e-4",
)

TINY_MODEL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "layers": 1,
    "attention_heads": 2,
    "key_value_heads": 2,
    "head_dim": 16,
}
"""Its compilation is what a test waits for, and no larger one would tell more."""


class Slice:
    """One simulated slice, or several, whose hosts can be lost and come back.

    `environment` is what somebody wrote into the hosts' pods beside what belongs there.
    """

    def __init__(self, folder, slices=1, environment=None, contract=CONTRACT):
        self.environment, self.contract = environment or {}, contract
        Path(get_default_ray_temp_dir()).mkdir(
            exist_ok=True
        )  # cluster_utils notes its address in there
        head = {
            "num_cpus": 2,
            "include_dashboard": False,
            "no_monitor": True,  # of the autoscaler, as in a local stack
            "temp_dir": folder,
        }
        self.cluster = _patiently(partial(Cluster, initialize_head=True, head_node_args=head))
        self.nodes = [self._host(i) for i in range(slices * contract.hosts)]

    def lose_host(self, index):
        self.cluster.remove_node(self.nodes[index], allow_graceful=False)
        self.cluster.wait_for_nodes(timeout=60)  # until Ray has noticed

    def bring_back_host(self, index):
        self.nodes[index] = self._host(index)

    def _host(self, index):
        contract = self.contract
        number, worker = divmod(index, contract.hosts)
        name, chips = f"slice-{number}", contract.chips_per_host
        head = {f"TPU-{contract.pod_type}-head": 1} if worker == 0 else {}
        return _patiently(
            self.cluster.add_node,
            num_cpus=2,
            include_log_monitor=False,
            resources={"TPU": chips, f"accelerator_type:{contract.accelerator_type}": 1, **head},
            labels={
                "ray.io/tpu-slice-name": name,
                "ray.io/tpu-worker-id": str(worker),
                "ray.io/tpu-topology": contract.topology,
                "ray.io/tpu-pod-type": contract.pod_type,
                "ray.io/accelerator-type": contract.accelerator_type,
            },
            env_vars={
                "TPU_NAME": name,
                "TPU_WORKER_ID": str(worker),
                "TPU_ACCELERATOR_TYPE": contract.pod_type,
                "TPU_TOPOLOGY": contract.topology,
                "JAX_PLATFORMS": "cpu",
                "XLA_FLAGS": f"--xla_force_host_platform_device_count={contract.devices_per_host} "
                "--xla_backend_optimization_level=0",  # compiles tiny models in half the time
                "JAX_COMPILATION_CACHE_DIR": _compiled().name,
                **self.environment,
            },
        )


@cache
def _compiled():
    """A folder for all clusters of the session, which compile the same steps."""
    return tempfile.TemporaryDirectory(prefix="compiled-")


def _patiently(start, **options):
    """Ray gives a raylet 30 s to register (fixed in its node.py); a busy machine may need more."""
    before = set(psutil.Process().children(recursive=True))
    for _ in range(ATTEMPTS - 1):
        try:
            return start(**options)
        except Exception:  # noqa: BLE001 # it is Ray's only one
            for process in set(psutil.Process().children(recursive=True)) - before:
                process.kill()
    return start(**options)


class Job:
    """A driver process, and the lines that people read of it."""

    def __init__(self, address, module, *arguments):
        self.lines = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=os.environ | {"RAY_ADDRESS": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, text, timeout_s):
        with self._changed:
            found = self._changed.wait_for(lambda: text in "\n".join(self.lines), timeout_s)
        assert found, f"no {text!r} within {timeout_s} s of: {self.lines}"

    def finish(self, timeout_s):
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            pytest.fail(f"not finished within {timeout_s} s: {self.lines}")
        self._reader.join(timeout=10)
        return code

    def _read(self):
        assert self.process.stdout
        for line in self.process.stdout:
            if "raytpu | " in line:
                with self._changed:
                    self.lines.append(line.split("raytpu | ")[1].strip())
                    self._changed.notify_all()
