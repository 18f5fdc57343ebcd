"""Continuous batching: requests join and leave a running batch between two tokens.

One thread owns the devices, so the event loop never waits for them. A request comes in through
`generate`, waits for a free row, and gets its tokens through an asyncio queue. A client that goes
away gives its row back before the next token.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from workloads.serve.completion import FinishReason, Sampling, Token
from workloads.serve.errors import Overloaded

log = logging.getLogger(__name__)


class Rows(Protocol):
    """What decodes several sequences together: a Batch, or those of all hosts of a slice."""

    rows: int
    length: int
    """Tokens of a sequence at most."""

    def warm_up(self) -> None: ...

    def start(self, row: int, prompt: Sequence[int], sampling: Sampling) -> int: ...

    def step(self) -> list[int]: ...


@dataclass(eq=False)
class _Request:
    prompt: Sequence[int]
    sampling: Sampling
    deliver: Callable[[Token | Exception], None]
    produced: int = 0
    cancelled: bool = False


class EngineStopped(RuntimeError):  # noqa: N818 (the engine's state)
    """The device thread has ended, by an error (its cause) or at shutdown."""


class Engine:
    """Serves requests from one batch until `stop`, with at most `queue_limit` of them waiting."""

    def __init__(
        self,
        batch: Rows,
        *,
        end_tokens: Sequence[int],
        queue_limit: int,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """`on_failure` is called by the device thread, once it can serve no more."""
        self._batch = batch
        self._on_failure = on_failure
        self._end_tokens = frozenset(end_tokens)
        self._queue_limit = queue_limit
        self._rows: list[_Request | None] = [None] * batch.rows
        self._waiting: deque[_Request] = deque()
        self._change = threading.Condition()
        self._stopping = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="devices", daemon=True)

    @property
    def busy_rows(self) -> int:
        return sum(request is not None for request in self._rows)

    def start(self) -> None:
        """Compile, then begin to serve."""
        began = time.monotonic()
        self._batch.warm_up()
        log.info("engine: compiled in %.1f s", time.monotonic() - began)
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """End after the current token; requests under way fail with EngineStopped.

        Raises TimeoutError if the devices do not answer in time.
        """
        with self._change:
            self._stopping = True
            self._change.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the device thread did not end within {timeout_s} s")

    def check(self) -> None:
        """Raises EngineStopped unless requests can be served."""
        if self._failure is not None:
            raise EngineStopped(f"the engine failed: {self._failure!r}") from self._failure
        if self._stopping or not self._thread.is_alive():
            raise EngineStopped("the engine is not running")

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling
    ) -> AsyncGenerator[Token, None]:
        """The tokens that follow `prompt`, as they are made. Closing it frees its place.

        Raises ValueError if prompt and completion do not fit, Overloaded if too many wait, and
        EngineStopped if the engine ends.
        """
        if not prompt or len(prompt) + sampling.max_tokens > self._batch.length:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens and {sampling.max_tokens} more do not fit"
                f" {self._batch.length}"
            )
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[Token | Exception]()

        def deliver(item: Token | Exception) -> None:
            loop.call_soon_threadsafe(tokens.put_nowait, item)

        request = _Request(prompt, sampling, deliver)
        self._submit(request)
        try:
            while True:
                item = await tokens.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                if item.finish_reason is not None:
                    return
        finally:
            request.cancelled = True

    def _submit(self, request: _Request) -> None:
        with self._change:
            self.check()
            waiting = sum(not other.cancelled for other in self._waiting)
            if waiting >= self._queue_limit:
                raise Overloaded(f"{waiting} requests are waiting already")
            self._waiting.append(request)
            self._change.notify()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._admit()
                if self.busy_rows:
                    self._step()
        except Exception as error:
            log.exception("engine: the device thread failed")
            self._failure = error
        with self._change:
            self._stopping = True
            lost = [request for request in (*self._rows, *self._waiting) if request is not None]
        for request in lost:
            self._deliver(request, EngineStopped("the engine stopped before the answer was whole"))
        if self._failure is not None and self._on_failure is not None:
            self._on_failure()

    def _wait_for_work(self) -> bool:
        """Returns once there is a request, or with False when it is time to end."""
        with self._change:
            self._change.wait_for(lambda: self._stopping or self._waiting or self.busy_rows)
            return not self._stopping

    def _admit(self) -> None:
        """Free the rows of clients that left, and start waiting requests in free rows."""
        for row, running in enumerate(self._rows):
            if running is not None and not running.cancelled:
                continue
            self._rows[row] = request = self._next_waiting()
            if request is not None:
                token = self._batch.start(row, request.prompt, request.sampling)
                self._produced(row, request, token)

    def _next_waiting(self) -> _Request | None:
        with self._change:
            while self._waiting:
                request = self._waiting.popleft()
                if not request.cancelled:
                    return request
        return None

    def _step(self) -> None:
        for row, token in enumerate(self._batch.step()):
            request = self._rows[row]
            if request is not None:
                self._produced(row, request, token)

    def _produced(self, row: int, request: _Request, token: int) -> None:
        request.produced += 1
        reason: FinishReason | None = None
        if token in self._end_tokens:
            reason = "stop"
        elif request.produced == request.sampling.max_tokens:
            reason = "length"
        if reason is not None:
            self._rows[row] = None
        self._deliver(request, Token(token, reason))

    def _deliver(self, request: _Request, item: Token | Exception) -> None:
        try:
            request.deliver(item)
        except RuntimeError:  # its event loop was closed: nobody is there to read
            request.cancelled = True
