"""Completions as they are made: several at once, and as server-sent events."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from workloads.serve.completion import Delta
from workloads.serve.errors import ApiError
from workloads.serve.protocol import Answer

log = logging.getLogger(__name__)


async def merged(
    streams: Sequence[AsyncGenerator[Delta, None]],
) -> AsyncGenerator[tuple[int, Delta], None]:
    """The deltas of all streams with their stream's index, as they come.

    The first error of any is raised, and ends all; so does closing.
    """
    arrived = asyncio.Queue[tuple[int, Delta] | Exception | None]()

    async def pump(index: int, stream: AsyncGenerator[Delta, None]) -> None:
        try:
            async with aclosing(stream):
                async for delta in stream:
                    arrived.put_nowait((index, delta))
        except Exception as error:  # noqa: BLE001 (raised again below)
            arrived.put_nowait(error)
        else:
            arrived.put_nowait(None)

    tasks = [asyncio.create_task(pump(index, stream)) for index, stream in enumerate(streams)]
    running = len(tasks)
    try:
        while running:
            item = await arrived.get()
            if item is None:
                running -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def events(
    answer: Answer,
    first: tuple[int, Delta],
    rest: AsyncGenerator[tuple[int, Delta], None],
    last: list[Delta],
    *,
    with_usage: bool,
) -> AsyncGenerator[str, None]:
    """Server-sent events; `last` is filled with each prompt's latest delta."""
    no_usage = {"usage": None} if with_usage else {}

    def event(index: int, delta: Delta) -> str:
        begins = last[index].tokens == 0
        last[index] = delta
        return _sse(answer.chunk(index, delta, first=begins) | no_usage)

    async with aclosing(rest):
        try:
            yield event(*first)
            async for index, delta in rest:
                yield event(index, delta)
        except Exception as error:  # the status is sent: all that is left is to say so
            log.exception("a stream failed")
            yield _sse(ApiError(500, f"the server failed ({type(error).__name__})").body)
            return
        if with_usage:
            yield _sse(answer.last_chunk(last))
        yield "data: [DONE]\n\n"


def _sse(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"
