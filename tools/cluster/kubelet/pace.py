"""Few containers start at a time: the nodes of a cluster share the cores of one machine.

Ray gives its processes 15 or 30 s to find each other, which no option changes. Five nodes that
start at once on two cores take longer, and die of it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from tools.cluster.kubelet.probes import Handler
from tools.cluster.kubelet.process import Process

Manifest = dict[str, Any]

SETTLE_LIMIT_S = 60.0
"""How long a container that starts keeps others waiting, at most."""
POLL_S, ANSWER_LIMIT_S = 0.5, 1.0


class Pace:
    """Containers with a probe are servers: the next starts when the last one answers."""

    def __init__(self, at_once: int = os.cpu_count() or 1) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._settling: set[asyncio.Task[None]] = set()

    async def start(
        self, container: Manifest, address: str, start: Callable[[], Awaitable[Process]]
    ) -> Process:
        probe = container.get("livenessProbe") or container.get("readinessProbe")
        if probe is None:
            return await start()
        await self._turns.acquire()
        try:
            process = await start()
        except BaseException:
            self._turns.release()
            raise
        settling = asyncio.create_task(self._settle(Handler(container, process, address), probe))
        self._settling.add(settling)  # the loop alone would forget it
        settling.add_done_callback(self._settling.discard)
        return process

    async def _settle(self, handler: Handler, probe: Manifest) -> None:
        try:
            async with asyncio.timeout(SETTLE_LIMIT_S):
                while handler.process.running and await handler.ask(probe, ANSWER_LIMIT_S):  # noqa: ASYNC110 # another program is asked
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            pass  # others have waited long enough
        finally:
            self._turns.release()
