"""The HTTP side: OpenAI's endpoints over something that completes prompts.

Knows no Ray and no JAX, so it is the same in front of a remote engine and in a test.
"""

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from workloads.serve import protocol
from workloads.serve.completion import Delta, Sampling
from workloads.serve.endpoints import check_name, make_app, model_entry
from workloads.serve.errors import ApiError
from workloads.serve.streaming import events, merged
from workloads.serve.text import Text, TextError

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's, for /v1/completions


class Completer(Protocol):
    """What answers prompts: an engine in another process, or in this one."""

    def complete(
        self, prompt: Sequence[int], sampling: Sampling, stops: Sequence[str]
    ) -> AsyncGenerator[Delta, None]:
        """Raises Overloaded, at the first step, if too many requests wait."""
        ...

    async def check(self) -> None:
        """Raises if prompts cannot be answered."""
        ...


@dataclass(frozen=True)
class Served:
    """The model behind the endpoints, and who may use it."""

    name: str
    text: Text
    vocab_size: int
    length: int
    """Tokens of prompt and completion together."""
    api_key: str | None = field(default=None, repr=False)
    """Asked of every caller of /v1, if set."""
    created: int = field(default_factory=lambda: int(time.time()))

    def entry(self) -> dict[str, Any]:
        return model_entry(self.name, self.created, max_model_len=self.length)


def make_api(served: Served, completer: Completer) -> FastAPI:
    """The application. Every error body has OpenAI's form."""
    v1 = APIRouter()

    # Bodies are read as they come: a parameter declared to FastAPI would be parsed before the
    # caller's key is checked, and refused with another form of error.
    @v1.post("/completions")
    async def completions(http: Request) -> Response:
        request = protocol.parse(protocol.CompletionRequest, await http.body())
        check_name(request.model, served.name)
        prompts = [_encode(served, prompt) for prompt in request.prompts]
        samplings = [
            _sampling(served, request, prompt, request.max_tokens, DEFAULT_COMPLETION_TOKENS)
            for prompt in prompts
        ]
        return await _answer(served, completer, protocol.COMPLETION, request, prompts, samplings)

    @v1.post("/chat/completions")
    async def chat(http: Request) -> Response:
        request = protocol.parse(protocol.ChatRequest, await http.body())
        check_name(request.model, served.name)
        prompt = _encode_chat(served, request.messages)
        asked = request.max_completion_tokens or request.max_tokens
        sampling = _sampling(served, request, prompt, asked, served.length)
        return await _answer(served, completer, protocol.CHAT, request, [prompt], [sampling])

    return make_app(v1, served.entry(), completer.check, api_key=served.api_key)


def _encode(served: Served, prompt: str | Sequence[int]) -> Sequence[int]:
    ids = served.text.encode(prompt) if isinstance(prompt, str) else prompt
    if not ids:
        raise ApiError(400, "the prompt has no tokens; write at least one", param="prompt")
    if max(ids) >= served.vocab_size:
        told = f"token {max(ids)} is outside the vocabulary of {served.vocab_size}"
        raise ApiError(400, told, param="prompt")
    return ids


def _encode_chat(served: Served, messages: Sequence[protocol.Message]) -> Sequence[int]:
    try:
        return served.text.encode_chat([message.plain() for message in messages])
    except TextError as error:
        raise ApiError(400, str(error), param="messages") from None


def _sampling(
    served: Served,
    request: protocol.Request,
    prompt: Sequence[int],
    asked: int | None,
    default: int,
) -> Sampling:
    """How to draw the completion: `asked` tokens, or up to `default` of those that still fit."""
    room = served.length - len(prompt)
    if room < (asked or 1):
        raise ApiError(
            400,
            f"this model takes {served.length} tokens: {len(prompt)} of the prompt and"
            f" {asked or 'at least 1'} of the completion are too many;"
            " shorten the prompt or lower max_tokens",
            param="messages" if isinstance(request, protocol.ChatRequest) else "prompt",
            code="context_length_exceeded",
        )
    return Sampling(
        max_tokens=asked or min(room, default),
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        seed=secrets.randbits(32) if request.seed is None else request.seed,
    )


async def _answer(
    served: Served,
    completer: Completer,
    shape: protocol.Shape,
    request: protocol.Request,
    prompts: Sequence[Sequence[int]],
    samplings: Sequence[Sampling],
) -> Response:
    """The whole response, or a stream of it. Raises Overloaded before its first byte."""
    answer = protocol.Answer(shape, served.name, sum(map(len, prompts)))
    deltas = merged(
        [
            completer.complete(prompt, sampling, request.stops)
            for prompt, sampling in zip(prompts, samplings, strict=True)
        ]
    )
    last = [Delta("", 0)] * len(prompts)
    if request.stream:
        # A refusal can have its own status only as long as nothing was sent.
        first = await anext(deltas)
        body = events(answer, first, deltas, last, with_usage=request.wants_usage)
        return StreamingResponse(body, media_type="text/event-stream")
    texts = [""] * len(prompts)
    async with aclosing(deltas):
        async for index, delta in deltas:
            texts[index] += delta.text
            last[index] = delta
    return JSONResponse(answer.whole(texts, last))
