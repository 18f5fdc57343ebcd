"""The HTTP side in one process, before a scripted painter; the client is OpenAI's."""

import base64

import openai
import pytest
from fastapi.testclient import TestClient
from openai import OpenAI

from workloads.serve.diffusion.api import Served, make_api
from workloads.serve.diffusion.config import read_config
from workloads.serve.errors import Overloaded
from workloads.serve.text import Text


class Scripted:
    def __init__(self):
        self.asked = []
        self.error = None

    async def draw(self, asked):
        if self.error is not None:
            raise self.error
        self.asked.append(asked)
        return [f"picture {one.index}".encode() for one in asked]

    async def check(self):
        if self.error is not None:
            raise self.error


@pytest.fixture
def painter():
    return Scripted()


@pytest.fixture
def api(painter, noise_folder):
    def made(**more):
        served = Served("paint", read_config(noise_folder), Text(noise_folder), **more)
        return TestClient(make_api(served, painter), raise_server_exceptions=False)

    return made


@pytest.fixture
def http(api):
    return api()


@pytest.fixture
def client(http):
    return OpenAI(base_url="http://testserver/v1", api_key="any", http_client=http, max_retries=0)


def test_as_many_pictures_come_as_were_asked_for(client, painter):
    answer = client.images.generate(
        model="paint", prompt="a cat", n=2, size="8x8", response_format="b64_json"
    )
    files = [base64.b64decode(one.b64_json) for one in answer.data]
    assert files == [b"picture 0", b"picture 1"]
    assert (answer.size, answer.output_format, answer.created > 0) == ("8x8", "png", True)
    (asked,) = painter.asked
    assert [one.index for one in asked] == [0, 1]
    assert len({one.seed for one in asked}) == 1
    assert {tuple(one.tokens) for one in asked} == {(64, 220, 66, 64, 83)}


def test_one_picture_comes_where_no_more_is_said(client, painter):
    assert len(client.images.generate(prompt="a cat").data) == 1
    assert len(painter.asked[0]) == 1


def test_a_seed_is_passed_on_and_one_that_was_drawn_is_told(client, painter):
    answer = client.images.generate(prompt="a cat", extra_body={"seed": -7})
    assert (answer.seed, painter.asked[0][0].seed) == (-7, -7)
    drawn = [client.images.generate(prompt="a cat").seed for _ in range(2)]
    assert drawn == [asked[0].seed for asked in painter.asked[1:]]
    assert drawn[0] != drawn[1]


def test_that_pictures_are_noise_is_said_in_the_answer_and_the_list_of_models(client):
    assert client.images.generate(prompt="a cat").trained is False
    (model,) = client.models.list().data
    assert (model.id, model.size, model.trained) == ("paint", "8x8", False)


@pytest.mark.parametrize(
    ("body", "status", "param", "told"),
    [
        ("{", 400, None, "the body is not valid JSON"),
        ({}, 400, "prompt", "prompt is missing"),
        ({"prompt": ""}, 400, "prompt", "at least 1 character"),
        ({"prompt": ["a", "b"]}, 400, "prompt", "valid string"),
        ({"prompt": "a" * 13}, 400, "prompt", "has 13 tokens, and this model reads 12; shorten"),
        ({"prompt": "a", "model": "dall-e-3"}, 404, "model", "this server has 'paint'"),
        ({"prompt": "a", "n": 0}, 400, "n", "greater than or equal to 1"),
        ({"prompt": "a", "n": 11}, 400, "n", "less than or equal to 10"),
        ({"prompt": "a", "n": "2"}, 400, "n", "valid integer"),
        ({"prompt": "a", "size": "1024x1024"}, 400, "size", "use '8x8'"),
        ({"prompt": "a", "size": 8}, 400, "size", "valid string"),
        ({"prompt": "a", "response_format": "url"}, 400, "response_format", "'b64_json'"),
        ({"prompt": "a", "seed": 1.5}, 400, "seed", "valid integer"),
        ({"prompt": "a", "quality": "hd"}, 400, "quality", "not supported by this server"),
        ({"prompt": "a", "style": "vivid"}, 400, "style", "not supported by this server"),
        ({"prompt": "a", "stream": True}, 400, "stream", "not supported by this server"),
        ({"prompt": "a", "output_format": "webp"}, 400, "output_format", "not supported"),
        ({"n": 0, "mask": "x"}, 400, "prompt", "mask is not supported"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_its_name(http, painter, body, status, param, told):
    send = {"content": body} if isinstance(body, str) else {"json": body}
    answer = http.post("/v1/images/generations", **send)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert told in error["message"]
    assert painter.asked == []


def test_what_asks_for_nothing_is_taken(http):
    nothing = {"quality": "auto", "background": "opaque", "stream": False, "style": None}
    body = {"prompt": "a", "size": "auto", "n": None, "seed": None, **nothing}
    assert http.post("/v1/images/generations", json=body).is_success


def test_nobody_draws_without_the_key(api, painter):
    http = api(api_key="sk-right")
    for headers in ({}, {"Authorization": "Bearer sk-wrong"}):
        answer = http.post("/v1/images/generations", json={"prompt": "a"}, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    right = {"Authorization": "Bearer sk-right"}
    assert painter.asked == []
    assert http.post("/v1/images/generations", json={"prompt": "a"}, headers=right).is_success


def test_a_full_queue_and_a_broken_engine_are_told_in_openais_form(http, client, painter):
    painter.error = Overloaded("64 pictures are waiting already")
    with pytest.raises(openai.InternalServerError, match="64 pictures are waiting") as caught:
        client.images.generate(prompt="a cat")
    assert (caught.value.status_code, caught.value.response.headers["Retry-After"]) == (503, "1")
    painter.error = RuntimeError("chip 3 is gone")
    with pytest.raises(openai.InternalServerError, match="its log says why") as caught:
        client.images.generate(prompt="a cat")
    assert "chip 3" not in caught.value.message
    assert http.get("/health").status_code == 503
    painter.error = None
    assert http.get("/health").json() == {"status": "ok"}
