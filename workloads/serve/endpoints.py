"""What every application with OpenAI's endpoints has, whatever its model answers with.

The list of models, who may ask, how an error is told, and whether the engine is well.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from workloads.serve.errors import ApiError, Overloaded

HEALTH_TIMEOUT_S = 5.0


def model_entry(name: str, created_unix_s: int, **more: Any) -> dict[str, Any]:
    """A model as /v1/models lists it, with what is not OpenAI's in `more`."""
    return {
        "id": name,
        "object": "model",
        "created": created_unix_s,
        "owned_by": "raytpu",
        **more,
    }


def make_app(
    v1: APIRouter,
    entry: Mapping[str, Any],
    check: Callable[[], Awaitable[None]],
    *,
    api_key: str | None,
) -> FastAPI:
    """The endpoints in `v1`, and those of the one model that `entry` describes.

    `check` raises if it cannot answer. Every error body has OpenAI's form.
    """
    api = FastAPI(title="raytpu", docs_url=None, redoc_url=None, openapi_url=None)

    @v1.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [entry]}

    @v1.get("/models/{name:path}")
    async def model(name: str) -> Mapping[str, Any]:
        check_name(name, entry["id"])
        return entry

    @api.get("/health")
    async def health() -> dict[str, str]:
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await check()
        except Exception as error:  # whatever it is, the engine cannot answer
            told = f"the engine cannot answer ({type(error).__name__})"
            raise ApiError(503, told, code="unhealthy") from error
        return {"status": "ok"}

    api.include_router(v1, prefix="/v1", dependencies=[Depends(_authorized(api_key))])
    _tell_errors(api)
    return api


def check_name(name: str, served: str) -> None:
    """Raises ApiError 404 unless a request is for the model that is served."""
    if name != served:
        raise ApiError(
            404,
            f"model {name!r} does not exist; this server has {served!r}",
            param="model",
            code="model_not_found",
        )


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
