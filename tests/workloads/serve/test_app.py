"""The application on real Ray Serve, on a simulated host of a v6e 2x2 slice."""

import asyncio
import concurrent.futures
import shutil
import socket
import sys
import tempfile
import time

import httpx
import openai
import pytest
import ray
from openai import OpenAI
from ray import cloudpickle, serve
from ray.cluster_utils import Cluster
from tokenizers import Tokenizer

from tests.workloads.simulated import ONE_HOST
from workloads.serve.app import AppArgs, Ingress
from workloads.serve.args import read
from workloads.serve.completion import Delta

pytestmark = pytest.mark.cluster

SLICE = vars(ONE_HOST)
SETTINGS = {
    "engine": "jax",
    "mesh": {"data": 1, "tensor": 4},
    "max_sequence_length": 64,
    "max_batch": 4,
    "dtype": "float32",
}
DEPLOY_TIMEOUT_S = 180
START_ATTEMPTS = 3  # Ray gives a raylet 30 s to start, which a busy machine may not have


def arguments(folder, **changes):
    base = {"slice": SLICE, "settings": SETTINGS, "model": str(folder), "model_name": "chat"}
    return base | changes


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def labels(topology):
    return {"ray.io/accelerator-type": "TPU-V6E", "ray.io/tpu-topology": topology}


def simulated(chips, folder):
    return {
        "JAX_COMPILATION_CACHE_DIR": f"{folder}-compiled",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={chips}",
    }


@pytest.fixture(scope="module")
def cluster():
    """The cluster, the declared slice's host in it, and the dashboard's address."""
    # Short: a socket's path has at most 107 bytes.
    folder = tempfile.mkdtemp(prefix="raytpu-", dir="/tmp")
    cluster, host, dashboard = started(folder, START_ATTEMPTS)
    yield cluster, host, dashboard
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def started(folder, attempts):
    cluster, dashboard_port = Cluster(), free_port()
    try:
        host = start(cluster, f"{folder}/{attempts}", dashboard_port)
    except Exception:  # Ray raises no other when a raylet was too slow
        cluster.shutdown()
        if attempts == 1:
            raise
        return started(folder, attempts - 1)
    return cluster, host, f"http://127.0.0.1:{dashboard_port}"


def start(cluster, folder, dashboard_port):
    """A head that has as many chips but of another shape, and the declared slice's host."""
    common = {"resources": {"TPU": 4}, "temp_dir": folder, "object_store_memory": 128 << 20}
    cluster.add_node(
        **common,
        num_cpus=1,
        labels=labels("4x4"),
        env_vars=simulated(2, folder),
        include_dashboard=True,
        dashboard_port=dashboard_port,
    )
    variables = simulated(4, folder)
    return cluster.add_node(**common, num_cpus=2, labels=labels("2x2"), env_vars=variables)


def deployed(dashboard, port, args, import_path="workloads.serve.app:build"):
    """The application's state once it is settled."""
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "applications": [
            {
                "name": "chat",
                "route_prefix": "/",
                "import_path": import_path,
                "args": args,
            }
        ],
    }
    url = f"{dashboard}/api/serve/applications/"
    httpx.put(url, json=config, timeout=60).raise_for_status()
    deadline, state = time.monotonic() + DEPLOY_TIMEOUT_S, {}
    while state.get("status") not in ("RUNNING", "DEPLOY_FAILED"):
        assert time.monotonic() < deadline, f"not settled after {DEPLOY_TIMEOUT_S} s: {state}"
        time.sleep(0.5)
        state = httpx.get(url, timeout=60).json()["applications"].get("chat", {})
    return state


@pytest.fixture(scope="module")
def app(cluster, tiny_folder, tmp_path_factory):
    _, _, dashboard = cluster
    key_file = tmp_path_factory.mktemp("key") / "key"
    key_file.write_text("sk-secret\n")
    port = free_port()
    state = deployed(dashboard, port, arguments(tiny_folder, api_key_file=str(key_file)))
    assert state["status"] == "RUNNING", state["message"]
    return f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="module")
def client(app):
    return OpenAI(base_url=app, api_key="sk-secret", max_retries=0, timeout=60)


def greedy(client, prompt, **more):
    return client.completions.create(
        model="chat", prompt=prompt, temperature=0, **({"max_tokens": 20} | more)
    )


def test_the_engine_takes_the_declared_slice_and_no_other(cluster, client):
    assert client.models.list().data[0].id == "chat"
    _, host, dashboard = cluster
    state = httpx.get(f"{dashboard}/api/serve/applications/", timeout=60).json()
    (replica,) = state["applications"]["chat"]["deployments"]["SliceEngine"]["replicas"]
    assert replica["node_id"] == host.node_id


def test_the_official_client_gets_the_same_text_whole_and_streamed(client):
    whole = greedy(client, "The slice serves")
    assert whole.usage.completion_tokens <= 20
    stream = greedy(client, "The slice serves", stream=True, stream_options={"include_usage": True})
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.usage == whole.usage


def test_many_clients_at_once_each_get_their_own_answer(client):
    prompts = [f"host {i}" for i in range(10)]
    alone = [greedy(client, prompt).choices[0].text for prompt in prompts]
    with concurrent.futures.ThreadPoolExecutor(10) as threads:
        crowd = list(threads.map(lambda p: greedy(client, p).choices[0].text, prompts))
    assert crowd == alone
    assert len(set(alone)) > 1


def test_a_stop_string_ends_the_answer_before_it(client):
    text = greedy(client, "The slice serves").choices[0].text
    stop = text[5:7]
    stopped = greedy(client, "The slice serves", stop=stop).choices[0]
    assert stopped.text == text[: text.index(stop)]
    assert stopped.finish_reason == "stop"


def test_chat_counts_the_tokens_of_its_template(client, tiny_folder):
    answer = client.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "Hi"}], max_tokens=3
    )
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    tokenizer = Tokenizer.from_file(str(tiny_folder / "tokenizer.json"))
    assert answer.usage.prompt_tokens == len(tokenizer.encode(prompt).ids)
    assert answer.usage.completion_tokens <= 3
    assert answer.choices[0].message.role == "assistant"


def test_errors_have_openais_status_and_form(client, app):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="gpt", prompt="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        greedy(client, "word " * 100)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        greedy(client.with_options(api_key="sk-wrong"), "x")
    headers = {"Authorization": "Bearer sk-secret"}
    bad = httpx.post(f"{app}/completions", content=b"{", headers=headers, timeout=60)
    assert bad.status_code == 400
    assert bad.json()["error"]["type"] == "invalid_request_error"


def test_clients_beyond_the_queue_are_told_to_come_again(client):
    """4 rows and 32 places: of 60 at once some are refused, and the others whole."""

    def ask(i):
        try:
            return greedy(client, f"n {i}", max_tokens=40)
        except openai.InternalServerError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(60) as threads:
        answers = list(threads.map(ask, range(60)))
    refused = [answer for answer in answers if isinstance(answer, openai.InternalServerError)]
    assert {(error.status_code, error.code) for error in refused} == {(503, "overloaded")}
    assert len(answers) - len(refused) >= 36


class EndlessEngine:
    """One word, and then nothing until the caller leaves."""

    def __init__(self):
        self.left = 0

    async def complete(self, prompt, sampling, stops):
        assert prompt
        assert sampling
        assert stops == ()
        try:
            yield Delta("word", 1)
            await asyncio.Event().wait()
        finally:
            self.left += 1

    async def departures(self):
        return self.left


def test_clients_that_leave_end_their_requests_in_the_engine(cluster, client, app, tiny_folder):
    """Also one that waits for the whole answer and hangs up."""
    ray.init(address=cluster[0].address, namespace="serve")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not import tests
    try:
        args = read(AppArgs, arguments(tiny_folder))
        endless = serve.deployment(ray_actor_options={"num_cpus": 0.1})(EndlessEngine)
        ingress = serve.deployment(ray_actor_options={"num_cpus": 0.1})(serve.ingress()(Ingress))
        serve.run(ingress.bind(endless.bind(), args), name="endless", route_prefix="/endless")
        patient = client.with_options(base_url=app.replace("/v1", "/endless/v1"))
        stream = greedy(patient, "x", stream=True)
        assert next(iter(stream)).choices[0].text == "word"
        stream.close()
        with pytest.raises(openai.APITimeoutError):
            greedy(patient.with_options(timeout=3), "x")
        engine = serve.get_deployment_handle("EndlessEngine", "endless")
        deadline = time.monotonic() + 30
        while (left := engine.departures.remote().result(timeout_s=30)) < 2:
            assert time.monotonic() < deadline, f"{left} of 2 requests have ended"
            time.sleep(0.2)
    finally:
        ray.shutdown()


def test_a_model_that_does_not_fit_its_slice_fails_the_deployment_with_the_reason(
    cluster, tiny_folder, client
):
    assert client  # the application of before is replaced
    *_, dashboard = cluster
    settings = SETTINGS | {"max_sequence_length": 512}
    port = int(str(client.base_url).split(":")[2].split("/")[0])
    state = deployed(dashboard, port, arguments(tiny_folder, settings=settings))
    assert state["status"] == "DEPLOY_FAILED"
    reason = state["message"].strip().splitlines()[-1]
    assert "max_sequence_length 512 is more than the model's own limit of 256" in reason
