import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def event_loop() -> Iterator[None]:
    """Of this thread, which Pulumi's mocks use. `asyncio.run` of an earlier test takes it away."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
