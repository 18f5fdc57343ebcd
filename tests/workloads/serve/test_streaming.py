"""Several completions at once."""

import asyncio

import pytest

from workloads.serve.completion import Delta
from workloads.serve.streaming import merged


class Endless:
    """One delta, and then nothing until it is closed."""

    def __init__(self):
        self.open = False

    async def stream(self):
        self.open = True
        try:
            yield Delta("a", 1)
            await asyncio.Event().wait()
        finally:
            self.open = False


async def failing():
    yield Delta("b", 1)
    raise ValueError("chip 3 is gone")


def test_closing_ends_every_stream():
    async def run():
        streams = [Endless(), Endless()]
        deltas = merged([stream.stream() for stream in streams])
        assert {(await anext(deltas))[0], (await anext(deltas))[0]} == {0, 1}
        assert all(stream.open for stream in streams)
        await asyncio.wait_for(deltas.aclose(), 20)
        assert not any(stream.open for stream in streams)

    asyncio.run(run())


def test_the_first_error_is_raised_and_ends_the_other_streams():
    async def run():
        endless = Endless()
        deltas = merged([endless.stream(), failing()])
        seen = [await anext(deltas), await anext(deltas)]
        assert sorted(seen, key=str) == [(0, Delta("a", 1)), (1, Delta("b", 1))]
        with pytest.raises(ValueError, match="chip 3 is gone"):
            await asyncio.wait_for(anext(deltas), 20)
        assert not endless.open

    asyncio.run(run())
