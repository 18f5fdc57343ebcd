"""The application on real Ray Serve, on a simulated host of a v6e 2x2 slice."""

import base64
import concurrent.futures
import shutil
import tempfile

import httpx
import openai
import pytest
from openai import OpenAI

from tests.workloads.serve.test_app import START_ATTEMPTS, arguments, deployed, free_port, started
from workloads.serve.diffusion import png

pytestmark = pytest.mark.cluster

SETTINGS = {"engine": "diffusion", "max_batch": 4, "sampler": {"steps": 1000}}


@pytest.fixture(scope="module")
def cluster():
    """The declared slice's host, and the dashboard's address."""
    folder = tempfile.mkdtemp(prefix="raytpu-", dir="/tmp")  # short, for the sake of sockets
    cluster, host, dashboard = started(folder, START_ATTEMPTS)
    yield host, dashboard
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def client(cluster, noise_folder, tmp_path_factory):
    _, dashboard = cluster
    key_file = tmp_path_factory.mktemp("key") / "key"
    key_file.write_text("sk-secret\n")
    args = arguments(
        noise_folder, settings=SETTINGS, model_name="paint", api_key_file=str(key_file)
    )
    port = free_port()
    state = deployed(dashboard, port, args, "workloads.serve.diffusion.app:build")
    assert state["status"] == "RUNNING", state["message"]
    url = f"http://127.0.0.1:{port}/v1"
    return OpenAI(base_url=url, api_key="sk-secret", max_retries=0, timeout=60)


def drawn(client, seed, n=2):
    answer = client.images.generate(prompt=f"cat {seed}", n=n, extra_body={"seed": seed})
    return [base64.b64decode(one.b64_json) for one in answer.data]


def test_the_engine_takes_the_declared_slice(cluster, client):
    host, dashboard = cluster
    assert client.models.list().data[0].id == "paint"
    state = httpx.get(f"{dashboard}/api/serve/applications/", timeout=60).json()
    (replica,) = state["applications"]["chat"]["deployments"]["SlicePainter"]["replicas"]
    assert replica["node_id"] == host.node_id


def test_many_clients_at_once_each_get_their_own_pictures(client):
    alone = [drawn(client, seed) for seed in range(6)]
    files = [file for two in alone for file in two]
    assert all(file.startswith(png.SIGNATURE) for file in files)
    assert len(set(files)) == 12
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        assert list(threads.map(lambda seed: drawn(client, seed), range(6))) == alone


def test_clients_beyond_the_queue_are_told_to_come_again(client):
    """4 rows and 32 places: of 200 pictures, asked for by ten, at least the first forty come."""

    def ask(seed):
        try:
            return drawn(client, seed, n=10)
        except openai.InternalServerError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(ask, range(20)))
    refused = [answer for answer in answers if isinstance(answer, openai.InternalServerError)]
    assert {(error.status_code, error.code) for error in refused} == {(503, "overloaded")}
    assert len(answers) - len(refused) >= 4


def test_nobody_draws_without_the_key(client):
    with pytest.raises(openai.AuthenticationError):
        drawn(client.with_options(api_key="sk-wrong"), 1)
