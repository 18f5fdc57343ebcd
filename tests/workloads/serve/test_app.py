"""The application on real Ray Serve, on a simulated host of a v6e 2x2 slice."""

import concurrent.futures
import shutil
import socket
import tempfile
import time

import httpx
import openai
import pytest
from openai import OpenAI
from ray.cluster_utils import Cluster
from tokenizers import Tokenizer

pytestmark = pytest.mark.cluster

SLICE = {
    "name": "chat",
    "slices": 1,
    "generation": "v6e",
    "machine_type": "ct6e-standard-4t",
    "topology": "2x2",
    "hosts": 1,
    "chips_per_host": 4,
    "hbm_gib_per_chip": 32,
    "accelerator_type": "TPU-V6E",
    "pod_type": "v6e-4",
}
SETTINGS = {
    "engine": "jax",
    "mesh": {"data": 1, "tensor": 4},
    "max_sequence_length": 64,
    "max_batch": 4,
    "dtype": "float32",
}
DEPLOY_TIMEOUT_S = 180


def arguments(folder, **changes):
    base = {"slice": SLICE, "settings": SETTINGS, "model": str(folder), "model_name": "chat"}
    return base | changes


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def labels(topology):
    return {"ray.io/accelerator-type": "TPU-V6E", "ray.io/tpu-topology": topology}


def simulated(chips):
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={chips}",
    }


@pytest.fixture(scope="module")
def cluster():
    """A head that has chips of another shape, and the declared slice's host."""
    # Short: a socket's path has at most 107 bytes.
    folder = tempfile.mkdtemp(prefix="raytpu-", dir="/tmp")  # noqa: S108 (see above)
    dashboard_port = free_port()
    cluster = Cluster()
    cluster.add_node(
        num_cpus=1,
        resources={"TPU": 4},
        labels=labels("4x4"),
        include_dashboard=True,
        dashboard_port=dashboard_port,
        temp_dir=folder,
        env_vars=simulated(2),
        object_store_memory=128 << 20,
    )
    host = cluster.add_node(
        num_cpus=2,
        resources={"TPU": 4},
        labels=labels("2x2"),
        temp_dir=folder,
        env_vars=simulated(4),
        object_store_memory=128 << 20,
    )
    yield cluster, host, f"http://127.0.0.1:{dashboard_port}"
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def deployed(dashboard, port, args):
    """The application's state once it is settled."""
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "applications": [
            {
                "name": "chat",
                "route_prefix": "/",
                "import_path": "workloads.serve.app:build",
                "args": args,
            }
        ],
    }
    deadline = time.monotonic() + DEPLOY_TIMEOUT_S
    url = f"{dashboard}/api/serve/applications/"
    httpx.put(url, json=config, timeout=60).raise_for_status()
    while time.monotonic() < deadline:
        state = httpx.get(url, timeout=60).json()["applications"].get("chat", {})
        if state.get("status") in ("RUNNING", "DEPLOY_FAILED"):
            return state
        time.sleep(0.5)
    raise AssertionError(f"the application is not settled after {DEPLOY_TIMEOUT_S} s: {state}")


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
            return greedy(client, f"n {i}", max_tokens=40).choices[0].text
        except openai.InternalServerError as error:
            assert error.status_code == 503
            assert error.code == "overloaded"
            return None

    with concurrent.futures.ThreadPoolExecutor(60) as threads:
        answers = list(threads.map(ask, range(60)))
    assert 60 > sum(answer is not None for answer in answers) >= 36


def test_clients_that_leave_give_their_rows_back(client):
    for _ in range(8):  # twice the rows
        stream = greedy(client, "The model", stream=True, max_tokens=55)
        next(iter(stream))
        stream.close()
    began = time.monotonic()
    assert greedy(client, "The model", max_tokens=2).usage.completion_tokens <= 2
    assert time.monotonic() - began < 20


def test_a_model_that_does_not_fit_its_slice_fails_the_deployment_with_the_reason(
    cluster, tiny_folder, client
):
    assert client  # the application of before is replaced
    *_, dashboard = cluster
    settings = SETTINGS | {"max_sequence_length": 512}
    port = int(str(client.base_url).split(":")[2].split("/")[0])
    state = deployed(dashboard, port, arguments(tiny_folder, settings=settings))
    assert state["status"] == "DEPLOY_FAILED"
    assert "max_sequence_length 512 is more than the model's own limit of 256" in state["message"]
