"""Simulated slices, and a model with random weights, for what is measured on them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.local import ports, processes, ray_node
from infra.local.workspace import Workspace
from infra.tpu.slice import SliceSpec, TpuSlice
from workloads.contract import SliceContract
from workloads.settings import MeshSettings, ModelSettings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".bench"
LIMIT_S = 1800
SPEC = SliceSpec(name="bench", machine_type="ct6e-standard-4t", topology="2x2")
CONTRACT = TpuSlice.resolve(SPEC).contract()
"""Of one host."""
MESH = {"data": 2, "tensor": 2}
"""Of its chips."""
VOCABULARY = 1024
IN_ONE_PROCESS = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={CONTRACT.devices_per_host}",
}
"""Variables of a process that has that slice's devices for itself, without Ray."""


@dataclass(frozen=True)
class Simulated:
    """One slice on this machine, a Ray node a host."""

    workspace: Workspace
    contract: SliceContract
    address: str

    @property
    def driver(self) -> dict[str, str]:
        """Variables of a program that is started by hand, not as a job of the cluster."""
        return {"RAY_ADDRESS": self.address, "JAX_PLATFORMS": "cpu"}

    def start(self, host: int) -> None:
        name = f"{self.contract.name}-{host}"
        environment = ray_node.host_environment(self.contract, host, f"{self.contract.name}-0")
        compiled = {"JAX_COMPILATION_CACHE_DIR": str(self.workspace.folder / "compiled")}
        ray_node.start_host(
            self.workspace.mark_of(name),
            self.workspace.node(name),
            address=self.address,
            tpu_chips=self.contract.chips_per_host,
            environment={**environment, **compiled},
        )

    def lose(self, host: int) -> None:
        """As if its power went: nothing of it says goodbye."""
        for process in processes.find(self.workspace.mark_of(f"{self.contract.name}-{host}")):
            with suppress(psutil.NoSuchProcess):
                process.kill()


@contextmanager
def simulated(work: Path, contract: SliceContract = CONTRACT) -> Iterator[Simulated]:
    """A head, and the slice's hosts. `work`: an empty folder."""
    workspace = Workspace(str(ROOT), f"bench-{work.name}", str(work))
    try:
        workspace.prepare()
        address = ray_node.start_head(
            workspace.mark_of("head"),
            workspace.node("head"),
            cpus=4,
            dashboard_port=ports.choose(None, ""),
        )
        tpu = Simulated(workspace, contract, address)
        for host in range(contract.hosts):
            tpu.start(host)
        yield tpu
    finally:
        processes.end(workspace.mark)
        workspace.clear()


def run(environment: dict[str, str], *command: str) -> str:
    """What a program of this project prints. Ends the bench if it fails."""
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)[:80]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def make_model(sizes: ModelSettings, folder: Path) -> list[str]:
    """Writes a model and its tokenizer; the texts that the tokenizer was trained on."""
    import jax.numpy as jnp

    from workloads.data import tokenizer
    from workloads.data.sources import BUILT_IN, Document, Source, read
    from workloads.model import hf, sharding
    from workloads.model.config import ModelConfig

    texts = [one.text for one in read(Source(BUILT_IN, 0), "text") if isinstance(one, Document)]
    file = folder.with_name("tokenizer.json")
    tokenizer.train(texts, VOCABULARY).save(str(file))
    config = ModelConfig.of(
        sizes, vocab_size=VOCABULARY, max_position_embeddings=256, eos_token_ids=(0, 2)
    )
    made = sharding.init_sharded(config, sharding.make_mesh(MeshSettings(**MESH)), seed=0)
    hf.export(made, folder, tokenizer_json=file, dtype=jnp.float32)
    return texts


def sentences(texts: list[str], count: int) -> list[str]:
    """Beginnings of sentences, some short and some long."""
    words = " ".join(texts).split()
    return [" ".join(words[7 * i : 7 * i + 3 + i % 15]) for i in range(count)]
