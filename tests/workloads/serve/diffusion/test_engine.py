"""The queue before the devices, with a batch that is drawn when the test says so."""

import asyncio
import threading
from contextlib import asynccontextmanager

import numpy as np
import pytest

from workloads.serve.diffusion.engine import Engine, Picture
from workloads.serve.engine import EngineStopped
from workloads.serve.errors import Overloaded

LIMIT_S = 10.0


class Gated:
    """Draws a picture of its seed, once `go` is set. `asked` are the seeds of each batch."""

    rows = 4

    def __init__(self):
        self.asked = []
        self.threads = set()
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self.broken = False

    def warm_up(self):
        self.threads.add(threading.get_ident())

    def draw(self, asked):
        self.asked.append([one.seed for one in asked])
        self.threads.add(threading.get_ident())
        self.begun.release()
        assert self.go.wait(LIMIT_S)
        if self.broken:
            raise RuntimeError("chip 3 is gone")
        return [np.full((1, 1, 3), one.seed) for one in asked]


def pictures(*seeds):
    return [Picture((1,), seed, 0) for seed in seeds]


def seeds_of(drawn):
    return [int(pixels[0, 0, 0]) for pixels in drawn]


@asynccontextmanager
async def started(rows, **options):
    engine = Engine(rows, **{"queue_limit": 8, **options})
    engine.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield engine
    finally:
        rows.go.set()
        engine.stop()


async def begun(rows):
    assert await asyncio.to_thread(rows.begun.acquire, timeout=LIMIT_S)


async def asked(engine, *seeds):
    """A request that has its place in the queue."""
    task = asyncio.create_task(engine.draw(pictures(*seeds)))
    await asyncio.sleep(0)
    return task


def test_what_is_asked_for_meanwhile_is_drawn_together_in_its_order():
    async def run():
        rows = Gated()
        async with started(rows) as engine:
            first = await asked(engine, 1)
            await begun(rows)
            others = [await asked(engine, 2, 3), await asked(engine, 4), await asked(engine, 5, 6)]
            rows.go.set()
            assert seeds_of(await first) == [1]
            assert [seeds_of(await other) for other in others] == [[2, 3], [4], [5, 6]]
        assert rows.asked == [[1], [2, 3, 4, 5], [6]]
        assert len(rows.threads) == 1
        assert threading.get_ident() not in rows.threads

    asyncio.run(run())


def test_a_client_that_leaves_gives_up_its_places():
    async def run():
        rows = Gated()
        async with started(rows) as engine:
            first = await asked(engine, 1)
            await begun(rows)
            gone, stays = await asked(engine, 2, 3), await asked(engine, 4)
            gone.cancel()
            first.cancel()
            rows.go.set()
            assert seeds_of(await stays) == [4]
        assert rows.asked == [[1], [4]]

    asyncio.run(run())


def test_too_many_that_wait_are_refused_until_some_have_left():
    async def run():
        rows = Gated()
        async with started(rows, queue_limit=2) as engine:
            await asked(engine, 1)
            await begun(rows)
            waiting = await asked(engine, 2, 3)
            with pytest.raises(Overloaded, match="2 pictures are waiting already"):
                await engine.draw(pictures(4))
            waiting.cancel()
            await asyncio.sleep(0)
            last = await asked(engine, 5)
            rows.go.set()
            assert seeds_of(await last) == [5]

    asyncio.run(run())


def test_a_request_may_be_larger_than_a_batch_and_than_the_queue():
    async def run():
        rows = Gated()
        rows.go.set()
        async with started(rows, queue_limit=1) as engine:
            assert seeds_of(await engine.draw(pictures(*range(10)))) == list(range(10))
        assert [len(batch) for batch in rows.asked] == [4, 4, 2]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "told"),
    [({}, "chip 3 is gone"), ({"timeout_s": 0.05}, "no answer within 0.05 s")],
)
def test_devices_that_fail_or_hang_end_the_engine_and_all_requests(options, told):
    async def run():
        rows, ended = Gated(), []
        rows.broken = True
        async with started(rows, on_failure=lambda: ended.append(1), **options) as engine:
            tasks = [await asked(engine, 1)]
            await begun(rows)
            tasks.append(await asked(engine, 2))
            if not options:
                rows.go.set()
            for task in tasks:
                with pytest.raises(EngineStopped, match=told):
                    await task
            with pytest.raises(EngineStopped, match=told):
                engine.check()
            with pytest.raises(EngineStopped, match=told):
                await engine.draw(pictures(3))
        assert ended == [1]

    asyncio.run(run())


def test_an_engine_that_was_stopped_refuses():
    async def run():
        rows = Gated()
        async with started(rows) as engine:
            engine.check()
            engine.stop()
            with pytest.raises(EngineStopped, match="is not running"):
                await engine.draw(pictures(1))

    asyncio.run(run())
