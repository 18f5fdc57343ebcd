"""The engine on eight devices, without Ray."""

import asyncio
import threading
from contextlib import aclosing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.workloads.greedy import by_whole_sequences
from workloads.model import hf, sharding
from workloads.serve.batch import Batch, choose, prefill_lengths
from workloads.serve.completion import Sampling, Token
from workloads.serve.engine import Engine, EngineStopped
from workloads.serve.errors import Overloaded
from workloads.settings import MeshSettings

LENGTH = 96
PROMPTS = ([5, 9, 200], [17] * 70, list(range(20, 33)), [250])


@pytest.fixture(scope="module")
def model(tiny_folder, devices):
    mesh = sharding.make_mesh(MeshSettings(data=2, tensor=4), devices)
    return hf.load(tiny_folder, mesh, dtype=jnp.float32)


@pytest.fixture(scope="module")
def engine(model):
    engine = Engine(Batch(model, rows=4, length=LENGTH), end_tokens=(), queue_limit=16)
    engine.start()
    yield engine
    engine.stop()


async def completed(engine, prompt, **sampling):
    how = Sampling(**({"max_tokens": 12, "temperature": 0.0} | sampling))
    return [token.id async for token in engine.generate(prompt, how)]


def test_a_greedy_answer_is_the_same_alone_in_a_crowd_and_without_a_cache(engine, model):
    async def crowd():
        return await asyncio.gather(
            *(completed(engine, prompt) for prompt in PROMPTS),
            *(completed(engine, [i], temperature=1.5, max_tokens=i + 1) for i in range(6)),
        )

    alone = [asyncio.run(completed(engine, prompt)) for prompt in PROMPTS]
    assert asyncio.run(crowd())[: len(PROMPTS)] == alone
    assert alone[0] == by_whole_sequences(model, PROMPTS[0], 12)


def test_a_seed_draws_the_same_answer_whatever_else_runs(engine):
    async def crowd():
        drawn = {"temperature": 1.0, "top_p": 0.9, "seed": 4}
        return await asyncio.gather(
            completed(engine, [7], **drawn),
            completed(engine, [7], **(drawn | {"seed": 5})),
            completed(engine, PROMPTS[1]),
            completed(engine, [7], **drawn),
        )

    first, other, _, last = asyncio.run(crowd())
    assert first == last
    assert first != other
    assert first == asyncio.run(completed(engine, [7], temperature=1.0, top_p=0.9, seed=4))


def test_more_requests_than_rows_are_all_answered_whole(engine):
    async def crowd():
        return await asyncio.gather(*(completed(engine, [i + 1]) for i in range(11)))

    assert [len(answer) for answer in asyncio.run(crowd())] == [12] * 11
    assert engine.busy_rows == 0


def test_a_prompt_and_completion_may_fill_the_cache_to_its_last_place(engine):
    full = asyncio.run(completed(engine, [3] * 20, max_tokens=LENGTH - 20))
    assert len(full) == LENGTH - 20
    with pytest.raises(ValueError, match="20 tokens and 77 more do not fit 96"):
        asyncio.run(completed(engine, [3] * 20, max_tokens=LENGTH - 19))


def test_prompts_are_padded_to_few_lengths_that_cover_all():
    assert prefill_lengths(256) == (64, 128, 256)
    assert prefill_lengths(100) == (64, 100)
    assert prefill_lengths(8) == (8,)


chosen = jax.jit(choose)


def draws(logits, *, temperature, top_p, count=4000):
    one = np.ones(count, np.float32)
    tokens = chosen(
        jnp.tile(jnp.array(logits, jnp.float32), (count, 1)),
        jnp.arange(count, dtype=jnp.uint32),
        jnp.zeros(count, jnp.int32),
        temperature * one,
        top_p * one,
    )
    return np.bincount(np.asarray(tokens), minlength=len(logits)) / count


def test_tokens_are_drawn_with_the_probabilities_of_the_tempered_softmax():
    logits = np.array([2.0, 1.0, 0.0, -1.0])
    share = np.exp(logits / 0.7) / np.exp(logits / 0.7).sum()
    np.testing.assert_allclose(draws(logits, temperature=0.7, top_p=1.0), share, atol=0.03)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.39, 1), (0.41, 2), (0.69, 2), (0.71, 3), (1e-6, 1), (1.0, 4)]
)
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p, kept):
    shares = np.array([0.4, 0.3, 0.2, 0.1])[[2, 0, 3, 1]]
    seen = draws(np.log(shares), temperature=1.0, top_p=top_p)
    expected = np.where(np.argsort(np.argsort(-shares)) < kept, shares, 0)
    np.testing.assert_allclose(seen, expected / expected.sum(), atol=0.03)


def test_temperature_zero_takes_the_likeliest_even_beside_drawn_rows():
    logits = jnp.tile(jnp.array([0.0, 0.1, 0.05]), (100, 1))
    temperature = jnp.where(jnp.arange(100) % 2 == 0, 0.0, 5.0)
    seeds, zeros = jnp.arange(100, dtype=jnp.uint32), jnp.zeros(100, jnp.int32)
    picked = np.asarray(chosen(logits, seeds, zeros, temperature, jnp.ones(100)))
    assert set(picked[::2]) == {1}
    assert set(picked[1::2]) == {0, 1, 2}


class ScriptedBatch:
    """A Batch whose tokens the test lets out one step at a time."""

    rows, length = 2, 100

    def __init__(self):
        self.permits = threading.Semaphore(0)
        self.started: list[tuple[int, int]] = []
        self.failure: Exception | None = None
        self.token = 1

    def warm_up(self):
        pass

    def start(self, row, prompt, sampling):
        assert sampling
        self.started.append((row, prompt[0]))
        return self.token

    def step(self):
        assert self.permits.acquire(timeout=20)
        if self.failure:
            raise self.failure
        return [self.token] * self.rows


@pytest.fixture
def scripted():
    batch = ScriptedBatch()
    engine = Engine(batch, end_tokens=(9, 99), queue_limit=2)
    engine.start()
    yield batch, engine
    batch.permits.release(1000)
    engine.stop()


def open_request(engine, prompt):
    return engine.generate([prompt], Sampling(max_tokens=50))


async def admitted(batch, request):
    """The first token of a request that finds a free row after one more step of the others."""
    first = asyncio.create_task(anext(request))
    await asyncio.sleep(0)  # the request is in the queue now
    batch.permits.release(1)
    return await asyncio.wait_for(first, 20)


def test_an_end_token_ends_the_answer(scripted):
    batch, engine = scripted

    async def run():
        async with aclosing(open_request(engine, 1)) as request:
            first = await anext(request)
            batch.token = 99
            batch.permits.release(1)
            return [first, *[token async for token in request]]

    assert asyncio.run(run()) == [Token(1, None), Token(99, "stop")]


def test_a_client_that_leaves_frees_its_row_for_one_that_waits(scripted):
    batch, engine = scripted

    async def run():
        leaving, staying, waiting = (open_request(engine, i) for i in (10, 11, 12))
        await anext(leaving)
        await admitted(batch, staying)
        late = asyncio.create_task(anext(waiting))
        await asyncio.sleep(0)  # it is in the queue now
        batch.permits.release(1)
        await anext(leaving)  # of the step that let the second request in
        await anext(leaving)  # of the step after: the third has found no row
        assert batch.started == [(0, 10), (1, 11)]
        assert not late.done()
        await leaving.aclose()
        batch.permits.release(1)
        await asyncio.wait_for(late, 20)
        assert batch.started == [(0, 10), (1, 11), (0, 12)]
        await staying.aclose()
        await waiting.aclose()

    asyncio.run(run())


def test_a_full_queue_refuses_at_once_and_a_place_given_up_counts_as_free(scripted):
    batch, engine = scripted

    async def run():
        running = [open_request(engine, i) for i in range(2)]
        await anext(running[0])
        await admitted(batch, running[1])
        tasks = [asyncio.create_task(anext(open_request(engine, i))) for i in (2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await anext(open_request(engine, 4))
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        tasks.append(asyncio.create_task(anext(open_request(engine, 5))))
        await asyncio.sleep(0)
        assert [task.done() for task in tasks] == [True, False, False]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for request in running:
            await request.aclose()

    asyncio.run(run())


def test_failed_devices_fail_every_request_and_the_health_check(scripted):
    batch, engine = scripted

    async def run():
        async with aclosing(open_request(engine, 1)) as running:
            await anext(running)
            engine.check()
            batch.failure = ValueError("chip 3 is gone")
            batch.permits.release(1)
            with pytest.raises(EngineStopped):
                await anext(running)
        with pytest.raises(EngineStopped, match="chip 3 is gone"):
            await anext(open_request(engine, 2))
        with pytest.raises(EngineStopped, match="chip 3 is gone"):
            engine.check()

    asyncio.run(run())


@pytest.mark.parametrize("fails", [True, False])
def test_a_replica_is_told_when_its_devices_failed_and_not_when_it_stops(fails):
    batch, told = ScriptedBatch(), threading.Event()
    engine = Engine(batch, end_tokens=(), queue_limit=2, on_failure=told.set)
    engine.start()

    async def run():
        async with aclosing(open_request(engine, 1)) as running:
            await anext(running)
            batch.failure = ValueError("chip 3 is gone") if fails else None
            batch.permits.release(1)
            if fails:
                with pytest.raises(EngineStopped):
                    await anext(running)

    asyncio.run(run())
    batch.permits.release(1000)
    engine.stop()
    assert told.is_set() == fails


def test_stopping_has_a_limit_and_leaves_no_client_waiting(scripted):
    batch, engine = scripted

    async def to_the_end(request):
        async for _ in request:
            pass

    async def run():
        requests = [open_request(engine, i) for i in (1, 2, 3)]
        await anext(requests[0])
        tasks = [asyncio.create_task(to_the_end(request)) for request in requests]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError, match="did not end within 0 s"):
            engine.stop(timeout_s=0)
        batch.permits.release(1)
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        assert [type(end) for end in ends] == [EngineStopped] * 3

    asyncio.run(run())


def test_a_batch_that_the_data_axis_does_not_divide_is_refused(model):
    assert jax.device_count() == 8
    with pytest.raises(ValueError, match="max_batch 3 is not a multiple of mesh axis data 2"):
        Batch(model, rows=3, length=LENGTH)
