"""The HTTP side: OpenAI's endpoints over something that completes prompts.

Knows no Ray and no JAX, so it is the same in front of a remote engine and in a test.
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from workloads.serve import protocol
from workloads.serve.completion import Delta, Sampling
from workloads.serve.errors import ApiError, Overloaded
from workloads.serve.streaming import events, merged
from workloads.serve.text import Text, TextError

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's, for /v1/completions
HEALTH_TIMEOUT_S = 5.0


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
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "raytpu",
            "max_model_len": self.length,
        }


def make_api(served: Served, completer: Completer) -> FastAPI:
    """The application. Every error body has OpenAI's form."""
    api = FastAPI(title="raytpu", docs_url=None, redoc_url=None, openapi_url=None)
    v1 = APIRouter(prefix="/v1", dependencies=[Depends(_authorized(served.api_key))])

    @v1.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [served.entry()]}

    @v1.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        _check_model(served, name)
        return served.entry()

    # Bodies are read as they come: a parameter declared to FastAPI would be parsed before the
    # caller's key is checked, and refused with another form of error.
    @v1.post("/completions")
    async def completions(http: Request) -> Response:
        request = protocol.parse(protocol.CompletionRequest, await http.body())
        _check_model(served, request.model)
        prompts = [_encode(served, prompt) for prompt in request.prompts]
        samplings = [
            _sampling(served, request, prompt, request.max_tokens, DEFAULT_COMPLETION_TOKENS)
            for prompt in prompts
        ]
        return await _answer(served, completer, protocol.COMPLETION, request, prompts, samplings)

    @v1.post("/chat/completions")
    async def chat(http: Request) -> Response:
        request = protocol.parse(protocol.ChatRequest, await http.body())
        _check_model(served, request.model)
        prompt = _encode_chat(served, request.messages)
        asked = request.max_completion_tokens or request.max_tokens
        sampling = _sampling(served, request, prompt, asked, served.length)
        return await _answer(served, completer, protocol.CHAT, request, [prompt], [sampling])

    @api.get("/health")
    async def health() -> dict[str, str]:
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await completer.check()
        except Exception as error:  # whatever it is, the engine cannot answer
            told = f"the engine cannot answer ({type(error).__name__})"
            raise ApiError(503, told, code="unhealthy") from error
        return {"status": "ok"}

    api.include_router(v1)
    _tell_errors(api)
    return api


def _tell_errors(api: FastAPI) -> None:
    def told(error: ApiError, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse(error.body, error.status, headers)

    @api.exception_handler(ApiError)
    async def refused(_: Request, error: ApiError) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if error.code == "invalid_api_key" else None
        return told(error, headers)

    @api.exception_handler(Overloaded)
    async def overloaded(_: Request, error: Overloaded) -> Response:
        busy = ApiError(503, f"the server is busy: {error}; try again", code="overloaded")
        return told(busy, {"Retry-After": "1"})

    @api.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        where = f"{request.method} {request.url.path}"
        return told(
            ApiError(error.status_code, f"{where}: {error.detail}"), dict(error.headers or {})
        )

    @api.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        # The details stay in the server's log, where Starlette writes the traceback.
        message = f"the server failed ({type(error).__name__}); its log says why"
        return told(ApiError(500, message))


def _authorized(api_key: str | None) -> Any:
    async def check(request: Request) -> None:
        if api_key is None:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        # In constant time: how long a comparison takes must not tell how much of a key is right.
        # Headers are bytes, which Starlette reads as Latin-1.
        same = hmac.compare_digest(given.strip().encode("latin-1"), api_key.encode())
        if scheme.lower() != "bearer" or not same:
            raise ApiError(
                401, "send the API key as 'Authorization: Bearer KEY'", code="invalid_api_key"
            )

    return check


def _check_model(served: Served, name: str) -> None:
    if name != served.name:
        raise ApiError(
            404,
            f"model {name!r} does not exist; this server has {served.name!r}",
            param="model",
            code="model_not_found",
        )


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
