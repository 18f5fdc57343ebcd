"""A local stack that serves what it trained with vLLM, and with our own engine beside it."""

from collections.abc import Iterator

import httpx
import openai
import psutil
import pytest

from tests.local.local_stack import LocalStack, one_chip

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

MODEL = {
    "layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "attention_heads": 4,
    "key_value_heads": 2,
    "head_dim": 32,
}
SERVED = {"kind": "serve", "model": "pretrain", "max_sequence_length": 64, "dtype": "float32"}
WORKLOADS = [
    {"name": "corpus", "kind": "data", "vocab_size": 512, "sequence_length": 64},
    {
        "name": "pretrain",
        "kind": "train",
        "slice": "train",
        "data": "corpus",
        "mesh": {"data": 1},
        "model": MODEL,
        "steps": 100,
        "global_batch": 16,
        "learning_rate": 0.005,
        "dtype": "float32",
    },
    {"name": "vllm", "slice": "vllm", "engine": "vllm", "max_batch": 4} | SERVED,
    {"name": "jax", "slice": "jax", "engine": "jax", "max_batch": 4} | SERVED,
]
PROMPTS = ("The value of a class", "def main(", "import os\n", "0")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    stack = LocalStack(tmp_path_factory.mktemp("vllm"), "vllm")
    names = ("train", "vllm", "jax")
    stack.declare(slices=[one_chip(name=name) for name in names], workloads=WORKLOADS)
    try:
        done = stack.up()
        assert done.code == 0, done.output
        yield stack
    finally:
        stack.destroy()
    assert stack.processes() == []


def client(stack: LocalStack, engine: str) -> openai.OpenAI:
    url = stack.outputs()["urls"][engine]
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def vllm(stack: LocalStack) -> openai.OpenAI:
    return client(stack, "vllm")


@pytest.fixture(scope="module")
def jax(stack: LocalStack) -> openai.OpenAI:
    return client(stack, "jax")


def greedy(client: openai.OpenAI, model: str, prompt: str) -> str:
    done = client.completions.create(model=model, prompt=prompt, max_tokens=24, temperature=0)
    return done.choices[0].text


def test_the_trained_model_answers_an_openai_client(vllm: openai.OpenAI) -> None:
    assert [model.id for model in vllm.models.list()] == ["vllm"]
    done = vllm.completions.create(model="vllm", prompt="The class", max_tokens=8, temperature=0)
    assert done.choices[0].text
    assert done.usage is not None
    assert done.usage.completion_tokens == 8


@pytest.mark.parametrize("prompt", PROMPTS)
def test_both_engines_give_the_same_greedy_answer(
    vllm: openai.OpenAI, jax: openai.OpenAI, prompt: str
) -> None:
    answer = greedy(jax, "jax", prompt)
    assert answer
    assert greedy(vllm, "vllm", prompt) == answer


def test_a_streamed_answer_is_the_whole_one_in_pieces(vllm: openai.OpenAI) -> None:
    how = {"model": "vllm", "prompt": PROMPTS[0], "max_tokens": 24, "temperature": 0}
    pieces = [piece.choices[0].text for piece in vllm.completions.create(stream=True, **how)]
    assert len([piece for piece in pieces if piece]) > 1
    assert "".join(pieces) == greedy(vllm, "vllm", PROMPTS[0])


def test_a_conversation_is_answered_at_once_and_in_pieces(vllm: openai.OpenAI) -> None:
    how = {
        "model": "vllm",
        "messages": [{"role": "user", "content": "What is a class?"}],
        "max_tokens": 12,
        "temperature": 0,
    }
    whole = vllm.chat.completions.create(**how).choices[0].message.content
    pieces = [
        piece.choices[0].delta.content or ""
        for piece in vllm.chat.completions.create(stream=True, **how)
    ]
    assert whole
    assert "".join(pieces) == whole


def test_a_request_longer_than_the_declared_limit_is_refused(vllm: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="64"):
        vllm.completions.create(model="vllm", prompt="a b c d " * 64, max_tokens=8)


@pytest.mark.usefixtures("vllm")
def test_nothing_of_vllm_listens_beyond_loopback(stack: LocalStack) -> None:
    """Each replica of Serve does, by Ray's own code, whatever it serves; see docs/local.md."""
    engines = [process for process in stack.processes() if "VLLM" in process.name()]
    assert engines
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in engines
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening <= {"127.0.0.1"}


@pytest.mark.usefixtures("vllm")
def test_the_engine_holds_its_slice(stack: LocalStack) -> None:
    """No other can be given the chip that it would have on a TPU."""
    url = f"{stack.outputs()['dashboard_url']}/api/v0/placement_groups?detail=true"
    groups = httpx.get(url).json()["data"]["result"]["result"]
    # Training had one as well, which Ray lists as removed.
    [held] = [group["bundles"] for group in groups if group["state"] == "CREATED"]
    assert [bundle["unit_resources"] for bundle in held] == [
        {"CPU": 1.0, "TPU": 1.0, "TPU-v6e-1-head": 1.0}
    ]


def test_a_second_up_changes_nothing(stack: LocalStack) -> None:
    done = stack.up("--refresh", "--expect-no-changes")
    assert done.code == 0, done.output
