"""OpenAI's request and response bodies: what is understood, what is refused, what is answered.

A parameter that would change the answer and is not implemented is refused by name; ignoring it
would answer another question than the one asked.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from workloads.serve.completion import Delta
from workloads.serve.errors import ApiError

MAX_STOPS = 4  # OpenAI's own limit


class Body(BaseModel):
    """A JSON object whose unknown keys are refused, unless their value asks for nothing."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Parameters that are not implemented, with the values (besides null) that change nothing."""

    @model_validator(mode="before")
    @classmethod
    def _without_neutral(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        return {key: value for key, value in raw.items() if not cls._is_neutral(key, value)}

    @classmethod
    def _is_neutral(cls, key: str, value: Any) -> bool:
        if key not in cls.neutral:
            return False
        # With the type: logprobs 0 asks for something, although 0 == False.
        known = [(type(other), other) for other in (None, *cls.neutral[key])]
        return (type(value), value) in known


Stop = Annotated[str, StringConstraints(min_length=1)]


class StreamOptions(Body):
    neutral = {"include_obfuscation": (False,)}

    include_usage: bool = False


class Request(Body):
    """What both endpoints take."""

    neutral = {
        "frequency_penalty": (0, 0.0),
        "logit_bias": ({},),
        "logprobs": (False,),
        "n": (1,),
        "presence_penalty": (0, 0.0),
    }

    model: str
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)

    # About the caller's account, not about the answer.
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed when stream is true")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class CompletionRequest(Request):
    neutral = {**Request.neutral, "best_of": (1,), "echo": (False,), "suffix": ("",)}

    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[list[TokenIds], Field(min_length=1)]
    )

    @property
    def prompts(self) -> Sequence[str | Sequence[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        texts = [item for item in self.prompt if isinstance(item, str)]
        rows = [item for item in self.prompt if isinstance(item, list)]
        row = [item for item in self.prompt if isinstance(item, int)]
        return texts or rows or [row]


class TextPart(Body):
    type: Literal["text"]
    text: str


class Message(Body):
    # Clients send an assistant's former answer back as they got it.
    neutral = {
        "annotations": ([],),
        "audio": (),
        "function_call": (),
        "name": (),
        "refusal": (),
        "tool_calls": ([],),
    }

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    def plain(self) -> dict[str, str]:
        """As chat templates take it: "developer" is OpenAI's newer word for "system"."""
        text = self.content
        if not isinstance(text, str):
            text = "".join(part.text for part in text)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(Request):
    neutral = {
        **Request.neutral,
        "audio": (),
        "function_call": ("none",),
        "functions": ([],),
        "modalities": (["text"],),
        "parallel_tool_calls": (True, False),
        "prediction": (),
        "reasoning_effort": ("none",),
        "response_format": ({"type": "text"},),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "top_logprobs": (0,),
        "verbosity": (),
        "web_search_options": (),
    }

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = Field(default=None, ge=1)


Parsed = TypeVar("Parsed", bound=Body)


def parse(kind: type[Parsed], body: bytes) -> Parsed:
    """Read a request's body. Raises ApiError 400 that names every fault."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
    params = [_param(fault["loc"]) for fault in faults]
    told = [_told(param, fault) for param, fault in zip(params, faults, strict=True)]
    raise ApiError(400, "; ".join(dict.fromkeys(told)), param=params[0] or None)


def _param(loc: tuple[int | str, ...]) -> str:
    """A place in OpenAI's writing, e.g. messages[0].content, without pydantic's union branches."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "int"):
            text += f".{part}"
    return text.removeprefix(".")


def _told(param: str, fault: Mapping[str, Any]) -> str:
    match fault["type"]:
        case "json_invalid":
            return f"the body is not valid JSON: {fault['ctx']['error']}"
        case "extra_forbidden":
            return f"{param} is not supported by this server with this value; leave it out"
        case "missing":
            return f"{param} is missing"
        case _:
            return f"{param}: {fault['msg']}" if param else fault["msg"]


@dataclass(frozen=True)
class Shape:
    """Where the two endpoints' responses differ."""

    prefix: str
    whole: str
    chunk: str
    content: Callable[[str], dict[str, Any]]
    piece: Callable[[str, bool], dict[str, Any]]
    """Of a text and whether it is the first: clients join the pieces, so the role comes once."""


COMPLETION = Shape(
    prefix="cmpl",
    whole="text_completion",
    chunk="text_completion",
    content=lambda text: {"text": text},
    piece=lambda text, _: {"text": text},
)
CHAT = Shape(
    prefix="chatcmpl",
    whole="chat.completion",
    chunk="chat.completion.chunk",
    content=lambda text: {"message": {"role": "assistant", "content": text, "refusal": None}},
    piece=lambda text, first: {
        "delta": ({"role": "assistant"} if first else {}) | {"content": text}
    },
)


class Answer:
    """The bodies of one response, which share an id."""

    def __init__(self, shape: Shape, model: str, prompt_tokens: int) -> None:
        self._shape = shape
        self._prompt_tokens = prompt_tokens
        self._id = f"{shape.prefix}-{uuid.uuid4().hex}"
        self._common = {"created": int(time.time()), "model": model}

    def whole(self, texts: Sequence[str], last: Sequence[Delta]) -> dict[str, Any]:
        """The response, from each prompt's text and last delta."""
        choices = [
            _choice(index, delta, self._shape.content(text))
            for index, (text, delta) in enumerate(zip(texts, last, strict=True))
        ]
        return self._body(self._shape.whole, choices) | self.usage(last)

    def chunk(self, index: int, delta: Delta, *, first: bool) -> dict[str, Any]:
        piece = self._shape.piece(delta.text, first)
        return self._body(self._shape.chunk, [_choice(index, delta, piece)])

    def last_chunk(self, last: Sequence[Delta]) -> dict[str, Any]:
        """What `include_usage` asks for: the usage, and no choice."""
        return self._body(self._shape.chunk, []) | self.usage(last)

    def usage(self, last: Sequence[Delta]) -> dict[str, dict[str, int]]:
        completion = sum(delta.tokens for delta in last)
        return {
            "usage": {
                "prompt_tokens": self._prompt_tokens,
                "completion_tokens": completion,
                "total_tokens": self._prompt_tokens + completion,
            }
        }

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._id, "object": kind, **self._common, "choices": choices}


def _choice(index: int, delta: Delta, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "index": index,
        **content,
        "logprobs": None,
        "finish_reason": delta.finish_reason,
    }
