"""A replica behind a handle, as Ray Serve's own local testing mode runs it, without a cluster."""

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from ray import serve

from tests.workloads.serve.diffusion.test_app_args import arguments
from tests.workloads.serve.diffusion.test_png import read as pixels_of
from tests.workloads.serve.test_app_args import SLICE
from workloads.serve.args import read
from workloads.serve.diffusion.api import Served, make_api
from workloads.serve.diffusion.app import ImageArgs, RemotePainter, SlicePainter
from workloads.serve.diffusion.config import read_config
from workloads.serve.text import Text


@pytest.fixture(scope="module")
def http(noise_folder):
    slice_ = SLICE | {"chips_per_host": 8, "topology": "2x4"}
    settings = {"sampler": {"steps": 4}, "max_batch": 8, "dtype": "float32"}
    args = read(ImageArgs, arguments(noise_folder, slice_=slice_, settings=settings))
    replica = serve.deployment()(SlicePainter).bind(args)
    handle = serve.run(replica, _local_testing_mode=True)
    served = Served("paint", read_config(noise_folder), Text(noise_folder))
    with TestClient(make_api(served, RemotePainter(handle))) as client:
        yield client


def drawn(http, seed):
    body = {"prompt": f"cat {seed}", "n": 2, "seed": seed}
    answer = http.post("/v1/images/generations", json=body)
    assert answer.is_success, answer.text
    return [base64.b64decode(one["b64_json"]) for one in answer.json()["data"]]


def test_many_clients_at_once_each_get_their_own_pictures(http):
    alone = [drawn(http, seed) for seed in range(6)]
    files = [file for two in alone for file in two]
    assert {pixels_of(file).shape for file in files} == {(8, 8, 3)}
    assert len(set(files)) == 12
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(lambda seed: drawn(http, seed), range(6))) == alone


def test_the_replica_is_asked_whether_it_is_well(http):
    assert http.get("/health").json() == {"status": "ok"}
