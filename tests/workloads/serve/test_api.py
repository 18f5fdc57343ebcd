"""The HTTP side in one process, before a scripted completer; the client is OpenAI's."""

import asyncio
import json

import openai
import pytest
from fastapi.testclient import TestClient
from openai import OpenAI

from workloads.serve.api import Served, make_api
from workloads.serve.completion import Delta
from workloads.serve.errors import Overloaded
from workloads.serve.text import Text

LENGTH = 40


class Echo:
    """Completes a prompt with as many words as may come; "three" always ends after 3 tokens."""

    def __init__(self):
        self.calls = []
        self.refuse_after = 99
        self.fail_after = 99
        self.open = 0

    async def complete(self, prompt, sampling, stops):
        if len(self.calls) >= self.refuse_after:
            raise Overloaded("9 requests are waiting already")
        self.calls.append((list(prompt), sampling, tuple(stops)))
        self.open += 1
        try:
            for n in range(1, sampling.max_tokens + 1):
                await asyncio.sleep(0)
                if n > self.fail_after:
                    raise RuntimeError("chip 3 is gone")
                if n == 3:
                    yield Delta("wö3", 3, "stop")
                    return
                yield Delta(f"wö{n} ", n, "length" if n == sampling.max_tokens else None)
        finally:
            self.open -= 1

    async def check(self):
        if self.fail_after == 0:
            raise RuntimeError("chip 3 is gone")


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def http(echo, tiny_folder):
    served = Served(name="chat", text=Text(tiny_folder), vocab_size=320, length=LENGTH)
    return TestClient(make_api(served, echo), raise_server_exceptions=False)


@pytest.fixture
def client(http):
    return OpenAI(base_url="http://testserver/v1", api_key="any", http_client=http, max_retries=0)


def test_models_are_listed_and_found_by_name(client):
    assert [model.id for model in client.models.list()] == ["chat"]
    assert client.models.retrieve("chat").object == "model"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("org/other")
    assert caught.value.code == "model_not_found"


def test_a_completion_says_its_text_reason_and_token_counts(client, echo):
    answer = client.completions.create(model="chat", prompt="Hi", max_tokens=2, temperature=0)
    assert answer.choices[0].text == "wö1 wö2 "
    assert answer.choices[0].finish_reason == "length"
    prompt = echo.calls[0][0]
    assert answer.usage.model_dump(
        include={"prompt_tokens", "completion_tokens", "total_tokens"}
    ) == {
        "prompt_tokens": len(prompt),
        "completion_tokens": 2,
        "total_tokens": len(prompt) + 2,
    }
    assert client.completions.create(model="chat", prompt="Hi").choices[0].finish_reason == "stop"


def test_several_prompts_have_an_answer_each_in_their_order(client, echo):
    answer = client.completions.create(model="chat", prompt=["a", "b", "c"], max_tokens=2)
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (i, "wö1 wö2 ") for i in range(3)
    ]
    assert answer.usage.prompt_tokens == 3
    assert answer.usage.completion_tokens == 6
    client.completions.create(model="chat", prompt=[[1, 2], [3]], max_tokens=1)
    client.completions.create(model="chat", prompt=[4, 5], max_tokens=1)
    assert [call[0] for call in echo.calls[3:]] == [[1, 2], [3], [4, 5]]


def test_what_is_asked_of_the_sampling_reaches_the_engine(client, echo):
    client.completions.create(
        model="chat", prompt="x", max_tokens=7, temperature=0.5, top_p=0.8, seed=-3, stop=["a", "b"]
    )
    client.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        max_completion_tokens=4,
        stop="c",
    )
    (_, first, first_stops), (_, second, second_stops) = echo.calls
    assert (first.max_tokens, first.temperature, first.top_p, first.seed) == (7, 0.5, 0.8, -3)
    assert (second.max_tokens, second.temperature, second.top_p) == (4, 1.0, 1.0)
    assert (first_stops, second_stops) == (("a", "b"), ("c",))


def test_without_a_seed_two_requests_draw_differently(client, echo):
    for _ in range(2):
        client.completions.create(model="chat", prompt="x")
    assert echo.calls[0][1].seed != echo.calls[1][1].seed


def test_without_max_tokens_a_completion_is_short_and_a_chat_fills_the_context(client, echo):
    client.completions.create(model="chat", prompt="x")
    client.completions.create(model="chat", prompt=[1] * (LENGTH - 5))
    client.chat.completions.create(model="chat", messages=[{"role": "user", "content": "x"}])
    short, squeezed, full = echo.calls
    assert short[1].max_tokens == 16
    assert squeezed[1].max_tokens == 5
    assert full[1].max_tokens == LENGTH - len(full[0])


def test_a_chat_stream_joins_to_one_message_and_ends_with_usage(client, echo):
    stream = client.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content for chunk in chunks) == "wö1 wö2 wö3"
    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant", None, None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "stop"]
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage.completion_tokens == 3
    assert last.usage.total_tokens == len(echo.calls[0][0]) + 3
    assert len({chunk.id for chunk in [*chunks, last]}) == 1


def test_a_completion_stream_of_several_prompts_tells_them_apart(client):
    stream = client.completions.create(model="chat", prompt=["a", "b"], stream=True)
    texts = {0: "", 1: ""}
    for chunk in stream:
        assert chunk.usage is None
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {0: "wö1 wö2 wö3", 1: "wö1 wö2 wö3"}


def test_a_stream_on_the_wire_is_server_sent_events_that_end_with_done(http):
    body = {"model": "chat", "prompt": "x", "max_tokens": 1, "stream": True}
    reply = http.post("/v1/completions", json=body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    first, done, rest = reply.text.split("\n\n")
    assert json.loads(first.removeprefix("data: "))["choices"][0]["text"] == "wö1 "
    assert (done, rest) == ("data: [DONE]", "")


BASE = {"model": "chat", "prompt": "x"}


@pytest.mark.parametrize(
    ("body", "param", "told"),
    [
        ({"prompt": "x"}, "model", "model is missing"),
        ({"model": "chat"}, "prompt", "prompt is missing"),
        (BASE | {"n": 2}, "n", "n is not supported by this server with this value; leave it out"),
        (BASE | {"echo": True}, "echo", "echo is not supported"),
        (BASE | {"logprobs": 0}, "logprobs", "logprobs is not supported"),
        (BASE | {"best_of": 3}, "best_of", "best_of is not supported"),
        (BASE | {"presence_penalty": 0.5}, "presence_penalty", "presence_penalty is not"),
        (BASE | {"logit_bias": {"5": 1}}, "logit_bias", "logit_bias is not supported"),
        (BASE | {"top_k": 5}, "top_k", "top_k is not supported"),
        (BASE | {"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        (BASE | {"max_tokens": "5"}, "max_tokens", "valid integer"),
        (BASE | {"temperature": 2.5}, "temperature", "less than or equal to 2"),
        (BASE | {"top_p": 0}, "top_p", "greater than 0"),
        (BASE | {"stop": ["a"] * 5}, "stop", "at most 4"),
        (BASE | {"stop": ""}, "stop", "at least 1 character"),
        (BASE | {"stream_options": {"include_usage": True}}, None, "only allowed when stream"),
        (BASE | {"prompt": ""}, "prompt", "the prompt has no tokens"),
        (BASE | {"prompt": []}, "prompt", "prompt"),
        (BASE | {"prompt": [1, 320]}, "prompt", "token 320 is outside the vocabulary of 320"),
        (BASE | {"prompt": [-1]}, "prompt", "greater than or equal to 0"),
        (
            BASE | {"prompt": [1] * 30, "max_tokens": 11},
            "prompt",
            "takes 40 tokens: 30 of the prompt and 11 of the completion are too many",
        ),
        (BASE | {"prompt": [1] * 40}, "prompt", "40 of the prompt and at least 1"),
        ([], None, "object"),
    ],
)
def test_a_completion_that_cannot_be_answered_as_asked_is_refused_by_name(http, body, param, told):
    reply = http.post("/v1/completions", json=body)
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert told in error["message"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content",
        ),
    ],
)
def test_a_chat_that_cannot_be_answered_as_asked_is_refused_by_name(http, changes, param):
    body = {"model": "chat", "messages": [{"role": "user", "content": "x"}]} | changes
    reply = http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_parameters_that_ask_for_nothing_are_accepted(http):
    body = BASE | {
        "n": 1,
        "echo": False,
        "best_of": 1,
        "logprobs": None,
        "suffix": None,
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "logit_bias": {},
        "user": "me",
        "stream": False,
    }
    assert http.post("/v1/completions", json=body).status_code == 200


def test_all_faults_of_a_request_are_told_at_once(http):
    error = http.post("/v1/completions", json=BASE | {"n": 3, "top_p": 7}).json()["error"]
    assert "n is not supported" in error["message"]
    assert "top_p" in error["message"]


def test_a_context_that_is_too_long_has_openais_code(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "word " * 60}]
        )
    assert caught.value.code == "context_length_exceeded"


def test_a_body_that_is_not_json_is_a_bad_request(http):
    reply = http.post("/v1/completions", content=b'{"model": ')
    assert reply.status_code == 400
    assert reply.json()["error"]["message"].startswith("the body is not valid JSON")


def test_a_body_without_a_content_type_is_read_as_json(http):
    reply = http.post("/v1/completions", content=json.dumps(BASE).encode())
    assert reply.status_code == 200


def test_an_unknown_model_or_path_is_not_found_in_openais_form(http):
    reply = http.post("/v1/completions", json=BASE | {"model": "gpt"})
    assert reply.status_code == 404
    assert reply.json()["error"] == {
        "message": "model 'gpt' does not exist; this server has 'chat'",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    lost = http.get("/v1/embeddings")
    assert lost.status_code == 404
    assert "GET /v1/embeddings" in lost.json()["error"]["message"]
    assert http.get("/v1/completions").status_code == 405


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_unavailable_and_ends_the_requests_other_prompts(http, echo, stream):
    echo.refuse_after = 1
    reply = http.post("/v1/completions", json=BASE | {"prompt": ["a", "b"], "stream": stream})
    assert echo.open == 0
    if stream and reply.status_code == 200:  # the first prompt had begun to stream
        assert '"error"' in reply.text
        return
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"
    assert reply.json()["error"]["code"] == "overloaded"
    assert reply.json()["error"]["type"] == "server_error"


def test_a_failure_under_way_ends_the_stream_with_an_error_and_without_done(http, echo):
    echo.fail_after = 1
    reply = http.post("/v1/completions", json=BASE | {"stream": True})
    assert reply.status_code == 200
    *_, error, rest = reply.text.split("\n\n")
    assert rest == ""
    assert json.loads(error.removeprefix("data: "))["error"]["type"] == "server_error"
    assert "[DONE]" not in reply.text


def test_a_failure_is_told_without_its_inside(http, echo):
    echo.fail_after = 1
    reply = http.post("/v1/completions", json=BASE)
    assert reply.status_code == 500
    assert "chip 3" not in reply.text
    assert reply.json()["error"]["type"] == "server_error"


def test_health_is_the_engines(http, echo):
    assert http.get("/health").status_code == 200
    echo.fail_after = 0
    assert http.get("/health").status_code == 503


def test_only_the_holder_of_the_key_is_served(echo, tiny_folder):
    served = Served(
        name="chat", text=Text(tiny_folder), vocab_size=320, length=LENGTH, api_key="sk-ünlocked"
    )
    http = TestClient(make_api(served, echo))
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic sk-1"}):
        reply = http.post("/v1/completions", content=b"not json", headers=headers)
        assert reply.status_code == 401
        assert reply.json()["error"]["code"] == "invalid_api_key"
        assert reply.headers["www-authenticate"] == "Bearer"
    assert http.get("/v1/models").status_code == 401
    good = {b"Authorization": "Bearer sk-ünlocked".encode()}
    assert http.post("/v1/completions", json=BASE, headers=good).status_code == 200
    assert http.get("/health").status_code == 200
    assert "sk-ünlocked" not in repr(served)
