"""The HTTP side: OpenAI's endpoint for pictures, over something that draws them.

Knows no Ray and no JAX, so it is the same in front of a remote engine and in a test.
"""

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol

from fastapi import APIRouter, FastAPI, Request
from pydantic import Field

from workloads.serve.diffusion.config import DiffusionConfig
from workloads.serve.diffusion.engine import Picture
from workloads.serve.endpoints import check_name, make_app, model_entry
from workloads.serve.errors import ApiError
from workloads.serve.protocol import Body, parse
from workloads.serve.text import Text

MOST_PICTURES = 10  # of a request; OpenAI's own limit


class ImageRequest(Body):
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "background": ("auto", "opaque"),
        "moderation": ("auto",),
        "output_compression": (100,),
        "output_format": ("png",),
        "partial_images": (0,),
        "quality": ("auto",),
        "stream": (False,),
        "style": (),
    }

    prompt: Annotated[str, Field(min_length=1)]
    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MOST_PICTURES)] | None = None
    size: str | None = None
    response_format: Literal["b64_json"] | None = None
    """Nothing is kept here that a URL could lead to."""
    seed: int | None = None
    """Not OpenAI's: the same seed, prompt and model draw the same pictures."""
    user: str | None = None


class Painter(Protocol):
    """What draws: an engine in another process, or in this one."""

    async def draw(self, asked: Sequence[Picture]) -> list[bytes]:
        """A PNG file of each. Raises Overloaded if too many wait."""
        ...

    async def check(self) -> None:
        """Raises if nothing can be drawn."""
        ...


@dataclass(frozen=True)
class Served:
    """The model behind the endpoint, and who may use it."""

    name: str
    config: DiffusionConfig
    text: Text
    api_key: str | None = field(default=None, repr=False)
    created: int = field(default_factory=lambda: int(time.time()))

    def entry(self) -> dict[str, Any]:
        size, trained = self.config.size, self.config.trained
        return model_entry(self.name, self.created, size=size, trained=trained)


def make_api(served: Served, painter: Painter) -> FastAPI:
    """The application. Every error body has OpenAI's form."""
    v1 = APIRouter()

    # Read as it comes, for the reason that the text's endpoints have.
    @v1.post("/images/generations")
    async def generations(http: Request) -> Mapping[str, Any]:
        request = parse(ImageRequest, await http.body())
        if request.model is not None:
            check_name(request.model, served.name)
        _check_size(served, request.size)
        tokens = _encode(served, request.prompt)
        seed = secrets.randbits(32) if request.seed is None else request.seed
        asked = [Picture(tokens, seed, index) for index in range(request.n or 1)]
        return _answer(served, seed, await painter.draw(asked))

    return make_app(v1, served.entry(), painter.check, api_key=served.api_key)


def _check_size(served: Served, size: str | None) -> None:
    if size not in (None, "auto", served.config.size):
        told = f"size {size!r} is not what this model draws; use {served.config.size!r}"
        raise ApiError(400, told, param="size")


def _encode(served: Served, prompt: str) -> list[int]:
    tokens, most = served.text.encode(prompt), served.config.text_length
    if len(tokens) > most:
        told = f"the prompt has {len(tokens)} tokens, and this model reads {most}; shorten it"
        raise ApiError(400, told, param="prompt", code="context_length_exceeded")
    return tokens


def _answer(served: Served, seed: int, files: Sequence[bytes]) -> Mapping[str, Any]:
    return {
        "created": int(time.time()),
        "data": [{"b64_json": base64.b64encode(file).decode()} for file in files],
        "output_format": "png",
        "size": served.config.size,
        # Not OpenAI's: with it the same can be drawn again.
        "seed": seed,
        # Not OpenAI's: without training, pictures are noise on purpose.
        "trained": served.config.trained,
    }
