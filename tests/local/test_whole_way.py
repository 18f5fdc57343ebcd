"""stacks/Pulumi.local.yaml as it stands: from the declaration to answers of the trained model."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jax
import jax.numpy as jnp
import openai
import psutil
import pytest
import yaml
from tokenizers import Tokenizer

from tests.local.local_stack import Done, LocalStack
from tests.tools.project import REPOSITORY
from tests.workloads.greedy import by_whole_sequences
from workloads.model import hf
from workloads.model.sharding import make_mesh
from workloads.settings import MeshSettings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> LocalStack:
    return LocalStack(tmp_path_factory.mktemp("whole"), "local")


@pytest.fixture(scope="module")
def up(whole: LocalStack) -> Iterator[Done]:
    declared = yaml.safe_load((REPOSITORY / "stacks/Pulumi.local.yaml").read_text())["config"]
    whole.declare(**{key.removeprefix("raytpu:"): value for key, value in declared.items()})
    try:
        done = whole.make("up")
        assert done.code == 0, done.output
        yield done
    finally:
        whole.destroy()


@pytest.fixture
def client(whole: LocalStack, up: Done) -> openai.OpenAI:  # noqa: ARG001 # the stack must be up
    url = whole.outputs()["urls"]["chat"]
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)


def test_training_ends_clearly_below_the_unigram_entropy(whole: LocalStack, up: Done) -> None:
    figures = whole.outputs()["results"]["pretrain"]
    assert figures["held_out_loss"] < figures["unigram_entropy"] - 0.5
    both = rf"held-out loss {figures['held_out_loss']:.3f}.*{figures['unigram_entropy']:.3f}"
    assert re.search(both, up.output)


def test_progress_of_training_streams_into_up(up: Done) -> None:
    before_it_was_made = up.output.partition("local-pretrain created")[0]
    steps = re.findall(r"step (\d+)/(\d+) +loss [\d.]+ +tokens/s [\d,]+", before_it_was_made)
    assert len({step for step, _ in steps}) > 3


def test_the_trained_model_answers_an_openai_client(
    client: openai.OpenAI, whole: LocalStack
) -> None:
    assert [model.id for model in client.models.list()] == ["chat"]
    done = client.completions.create(model="chat", prompt="The class", max_tokens=8, temperature=0)
    (exported,) = whole.storage.glob("pretrain/*/export")
    assert done.choices[0].text == greedy(exported, "The class", 8)
    assert done.usage is not None
    assert done.usage.completion_tokens == 8


def test_a_streamed_answer_is_the_whole_one_in_parts(client: openai.OpenAI) -> None:
    asked: Any = {
        "model": "chat",
        "messages": [{"role": "user", "content": "What is a list?"}],
        "max_tokens": 8,
        "temperature": 0,
    }
    parts = [
        chunk.choices[0].delta.content or ""
        for chunk in client.chat.completions.create(stream=True, **asked)
    ]
    assert len([part for part in parts if part]) > 1
    assert "".join(parts) == client.chat.completions.create(**asked).choices[0].message.content


def test_what_is_wrong_with_a_request_is_told_in_openais_form(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.completions.create(model="nobody", prompt="x")
    with pytest.raises(openai.BadRequestError, match="128 tokens"):
        client.completions.create(model="chat", prompt="word " * 5000)


def test_up_again_changes_nothing_and_the_model_still_answers(
    whole: LocalStack, client: openai.OpenAI
) -> None:
    done = whole.up("--refresh", "--expect-no-changes")
    assert done.code == 0, done.output
    assert client.completions.create(model="chat", prompt="A", max_tokens=1).choices


def test_an_api_key_is_asked_for_and_shows_nowhere(whole: LocalStack, up: Done) -> None:  # noqa: ARG001
    place = "raytpu:workloads[2].api_key"
    secret = "correct-horse-battery"  # noqa: S105 # what must not be seen
    setting = whole.pulumi("config", "set", "--secret", "--path", place, secret)
    assert setting.code == 0, setting.output
    done = whole.up()
    assert done.code == 0, done.output
    url = whole.outputs()["urls"]["chat"]
    without = httpx.get(f"{url}/models")
    assert without.status_code == httpx.codes.UNAUTHORIZED
    assert without.json()["error"]["type"]
    assert openai.OpenAI(base_url=url, api_key=secret).models.list().data
    seen = [done.output, whole.run("pulumi", "stack", "export", "--stack", "local").output]
    logs = [p.read_text(errors="replace") for p in whole.root.glob(".raytpu/**/*.log")]
    assert not any(secret in text for text in [*seen, *logs])


def test_destroy_ends_each_process_and_port_and_keeps_the_model(
    whole: LocalStack,
    up: Done,  # noqa: ARG001
) -> None:
    ports = {
        connection.laddr.port
        for process in whole.processes()
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    done = whole.make("down")
    assert done.code == 0, done.output
    assert whole.processes() == []
    assert ports
    assert not [port for port in ports if _is_open(port)]
    assert list(whole.storage.glob("pretrain/*/export/model.safetensors"))


def greedy(exported: Path, prompt: str, tokens: int) -> str:
    """The answer of what was exported, on one device and without a server."""
    model = hf.load(exported, make_mesh(MeshSettings(), jax.devices()[:1]), dtype=jnp.float32)
    tokenizer = Tokenizer.from_file(str(exported / "tokenizer.json"))
    return tokenizer.decode(by_whole_sequences(model, tokenizer.encode(prompt).ids, tokens))


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
