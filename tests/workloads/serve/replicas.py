"""What tests of replicas over several hosts share: a cluster, an application, right answers."""

import asyncio
import concurrent.futures
import contextlib
import os
import socket
import tempfile
import time
from pathlib import Path
from types import ModuleType

import jax.numpy as jnp
import psutil
import ray
from openai import OpenAI
from ray import cloudpickle, serve
from ray._private.state import available_resources_per_node
from ray.util.placement_group import placement_group_table

import infra.local
from tests.workloads.simulated import Slice
from workloads.model import hf, sharding
from workloads.serve.app import build
from workloads.serve.batch import Batch
from workloads.serve.completion import Sampling
from workloads.serve.engine import Engine
from workloads.serve.text import Text, write
from workloads.settings import MeshSettings, ServeSettings

MESH = MeshSettings(data=2, tensor=4)
SETTINGS = ServeSettings(mesh=MESH, max_sequence_length=64, max_batch=4, dtype="float32")
PROMPTS = ("The slice serves", "A host that is lost", "def main", "x")
WAIT_S = 120
LIBTPU = Path(infra.local.__file__).parent / "simulated"


@contextlib.contextmanager
def connected(tmp_path_factory, contract, slices, module: ModuleType):
    """Simulated slices, and this process as a driver whose own code `module` goes to workers."""
    # Ray's sockets lie in its folder, and a socket's path is at most 107 bytes long.
    folder = tempfile.mkdtemp(prefix="ray", dir=tmp_path_factory.getbasetemp().parent)
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "PYTHONPATH": os.pathsep.join([str(LIBTPU), os.environ.get("PYTHONPATH", "")]),
    }
    tpu = Slice(folder, slices=slices, environment=environment, contract=contract)
    try:
        ray.init(address=tpu.cluster.address, namespace="serve", log_to_driver=False)
        cloudpickle.register_pickle_by_value(module)
        yield tpu
    finally:
        ray.shutdown()
        tpu.cluster.shutdown()


@contextlib.contextmanager
def deployed(folder, contract, **more):
    """A client of the application."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    arguments = {
        "slice": vars(contract),
        "settings": SETTINGS.model_dump(mode="json"),
        "model": str(folder),
        "model_name": "chat",
        "replicas": contract.slices,
        **more,
    }
    serve.run(build(arguments), name="chat", route_prefix="/")
    try:
        url = f"http://127.0.0.1:{port}/v1"
        yield OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)
    finally:
        serve.shutdown()


def right_answers(folder, devices):
    """Greedy answers of one process that has all eight devices."""
    model = hf.load(folder, sharding.make_mesh(MESH, devices), dtype=jnp.float32)
    batch = Batch(model, rows=SETTINGS.max_batch, length=SETTINGS.max_sequence_length)
    engine = Engine(batch, end_tokens=model.config.eos_token_ids, queue_limit=9)
    engine.start()
    text = Text(folder)

    async def answer(prompt):
        tokens = engine.generate(text.encode(prompt), Sampling(max_tokens=20, temperature=0))
        return "".join([delta.text async for delta in write(tokens, text.tokenizer, ())])

    try:
        return {prompt: asyncio.run(answer(prompt)) for prompt in PROMPTS}
    finally:
        engine.stop()


def greedy(client, prompt, **more):
    made = client.completions.create(
        model="chat", prompt=prompt, temperature=0, **({"max_tokens": 20} | more)
    )
    return made.choices[0].text


def crowd(client):
    """Each prompt twice, all at once: more than one replica answers, each with several rows."""
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda prompt: greedy(client, prompt), PROMPTS * 2))


def reservations():
    """The nodes of each placement group that is there, by its id."""
    return {
        name: set(group["bundles_to_node_id"].values())
        for name, group in placement_group_table().items()
        if group["state"] == "CREATED"
    }


def free_chips():
    return sum(node.get("TPU", 0) for node in available_resources_per_node().values())


def host_processes(worker_id):
    """Of this test's own cluster."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            hosts = process.name().startswith("ray::Host")
            if hosts and process.environ().get("TPU_WORKER_ID") == worker_id:
                found.append(process)
    return found


def replicas_running():
    states = serve.status().applications["chat"].deployments["SliceEngine"].replica_states
    return sum(count for state, count in states.items() if state == "RUNNING")


def eventually(holds, what):
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.5)
