"""The queue before the devices: pictures that wait are drawn together, as many as a batch holds.

A batch is not waited for: what is asked for while one is drawn makes up the next. One thread owns
the devices, so the event loop never waits for them. Imports no JAX.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from workloads.serve.engine import EngineStopped
from workloads.serve.errors import Overloaded

log = logging.getLogger(__name__)

DRAW_TIMEOUT_S = 100.0  # for a batch; as long as Serve lets requests under way end


@dataclass(frozen=True)
class Picture:
    """One that is asked for. The same three always give the same."""

    tokens: Sequence[int]
    seed: int
    index: int
    """Its number among those of one request."""


class Rows(Protocol):
    """What draws several pictures together."""

    rows: int

    def warm_up(self) -> None: ...

    def draw(self, asked: Sequence[Picture]) -> list[np.ndarray]: ...


@dataclass(frozen=True)
class _Waiting:
    picture: Picture
    pixels: asyncio.Future[np.ndarray]


class Engine:
    """Draws until `stop`, and refuses a request while `queue_limit` pictures wait."""

    def __init__(
        self,
        rows: Rows,
        *,
        queue_limit: int,
        on_failure: Callable[[], None] | None = None,
        timeout_s: float = DRAW_TIMEOUT_S,
    ) -> None:
        """`on_failure` is called once it can draw no more."""
        self._rows, self._queue_limit = rows, queue_limit
        self._on_failure, self._timeout_s = on_failure, timeout_s
        self._waiting: deque[_Waiting] = deque()
        self._devices = ThreadPoolExecutor(1, "devices")
        self._drawing: asyncio.Task[None] | None = None
        self._stopped: str | None = None

    def start(self) -> None:
        """Compile, so that no request waits for it."""
        self._devices.submit(self._rows.warm_up).result()

    def stop(self) -> None:
        """Begin nothing more. A batch under way is drawn to its end."""
        self._stopped = self._stopped or "the engine is not running"
        self._devices.shutdown(wait=False)

    def check(self) -> None:
        """Raises EngineStopped unless pictures can be drawn."""
        if self._stopped is not None:
            raise EngineStopped(self._stopped)

    async def draw(self, asked: Sequence[Picture]) -> list[np.ndarray]:
        """Pixels of each. A call that is cancelled gives up its places in the queue.

        Raises Overloaded if too many wait, and EngineStopped if the engine ends.
        """
        self.check()
        self._waiting = deque(one for one in self._waiting if not one.pixels.done())
        if len(self._waiting) >= self._queue_limit:
            raise Overloaded(f"{len(self._waiting)} pictures are waiting already")
        loop = asyncio.get_running_loop()
        mine = [_Waiting(picture, loop.create_future()) for picture in asked]
        self._waiting.extend(mine)
        if self._drawing is None or self._drawing.done():
            self._drawing = loop.create_task(self._draw_all())
        return await asyncio.gather(*(one.pixels for one in mine))

    async def _draw_all(self) -> None:
        loop = asyncio.get_running_loop()
        while batch := self._next_batch():
            asked = [one.picture for one in batch]
            try:
                async with asyncio.timeout(self._timeout_s):
                    drawn = await loop.run_in_executor(self._devices, self._rows.draw, asked)
            except Exception as error:  # whatever it is, the devices cannot be trusted any more
                log.exception("engine: a batch failed")
                self._fail(batch, error)
                return
            for one, pixels in zip(batch, drawn, strict=True):
                if not one.pixels.done():
                    one.pixels.set_result(pixels)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        while self._waiting and len(batch) < self._rows.rows:
            one = self._waiting.popleft()
            if not one.pixels.done():  # cancelled
                batch.append(one)
        return batch

    def _fail(self, batch: Sequence[_Waiting], error: Exception) -> None:
        told = f"no answer within {self._timeout_s} s" if isinstance(error, TimeoutError) else error
        self._stopped = f"the engine failed: {told!r}"
        for one in (*batch, *self._waiting):
            if not one.pixels.done():
                one.pixels.set_exception(EngineStopped(self._stopped))
        self.stop()
        if self._on_failure is not None:
            self._on_failure()
