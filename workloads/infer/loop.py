"""The loop over parts: runs on every host of the slice, one process a host.

All hosts compute each batch together, so all make the same calls on the same prompts in the same
order; each reads and tokenizes them by itself, which is little beside computing them, and needs no
word between hosts. What a host knows by itself only (whether it could load the model, which files
it sees) is agreed upon first: a host that went its own way would leave the others waiting for it.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from workloads.errors import UserError
from workloads.infer import output
from workloads.infer.answers import Prompts, Work, answer
from workloads.infer.compute import Computer
from workloads.infer.job import Job
from workloads.infer.plan import Part
from workloads.infer.prompts import Limits, Reader, Row, encode
from workloads.model import hf, sharding
from workloads.model.config import ModelError
from workloads.model.qwen3 import Qwen3
from workloads.serve.batch import prefill_lengths
from workloads.serve.text import Text
from workloads.slices import check_devices
from workloads.train.progress import tell

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")


def infer(job: Job) -> float | None:
    """Computes all parts that are not there; rows a second, or None if that was too short to tell.

    Raises UserError, on every host, for what the user has to change.
    """
    request = job.request
    model = _agreed(lambda: _load(job), request.model)
    text = Text(Path(request.model))
    todo = _todo(job)
    rows = sum(part.rows for part in todo)
    tell(
        f"mesh {request.mesh}: {jax.device_count()} {jax.devices()[0].device_kind} devices on "
        f"{jax.process_count()} hosts; {len(todo)} of {len(job.parts)} parts to compute, "
        f"{rows:,} rows"
    )
    work = Work(
        settings=request.settings,
        computer=Computer(model, request.settings),
        tokenizer=text.tokenizer,
        ends=frozenset(model.config.eos_token_ids),
        widths=prefill_lengths(request.settings.longest_prompt),
    )
    limits = Limits(request.settings.longest_prompt, model.config.vocab_size)
    return _compute(job, todo, work, limits)


def _compute(job: Job, todo: list[Part], work: Work, limits: Limits) -> float | None:
    """Reading, computing and writing go on side by side, each of them one part at a time."""
    reader = Reader(job.request.columns)
    writer = jax.process_index() == 0
    clock = Clock(sum(part.rows for part in todo))
    pending: Future[None] | None = None

    def prepare(part: Part) -> tuple[Part, list[Row], Prompts]:
        rows = reader.rows(part.pieces)
        return part, rows, encode(rows, work.tokenizer, limits)

    with ThreadPoolExecutor(1, "write") as writing:
        for part, rows, prompts in ahead(todo, prepare):
            table, totals = answer(rows, prompts, work)
            if pending:
                pending.result()
            if writer:
                pending = writing.submit(output.write_part, job.folder, part, table, totals)
            tell(clock.lap(part.rows))
        if pending:
            pending.result()
    return clock.rows_per_s()


def ahead(items: Iterable[Item], prepare: Callable[[Item], Prepared]) -> Iterator[Prepared]:
    """Each item prepared, while the caller still works on the one before."""
    with ThreadPoolExecutor(1, "ahead") as pool:
        coming: Future[Prepared] | None = None
        for item in items:
            following = pool.submit(prepare, item)
            if coming:
                yield coming.result()
            coming = following
        if coming:
            yield coming.result()


class Clock:
    """How many rows are done, and how fast. The first part is apart: its programs are compiled."""

    def __init__(self, rows: int) -> None:
        self._rows, self._done, self._timed_rows = rows, 0, 0
        self._started: float | None = None
        self._ended = 0.0

    def lap(self, rows: int) -> str:
        """Another part is done; what to tell of it."""
        self._done += rows
        self._ended = monotonic()
        if self._started is None:
            self._started = self._ended
        else:
            self._timed_rows += rows
        rate = self.rows_per_s()
        speed = "" if rate is None else f"  rows/s {rate:.1f}"
        return f"{self._done:,} of {self._rows:,} rows{speed}"

    def rows_per_s(self) -> float | None:
        if self._started is None or not self._timed_rows:
            return None
        return self._timed_rows / (self._ended - self._started)


def _load(job: Job) -> Qwen3:
    request = job.request
    check_devices(request.contract)
    mesh = sharding.make_mesh(request.mesh)
    return hf.load(Path(request.model), mesh, dtype=jnp.dtype(request.settings.dtype))


def _agreed(load: Callable[[], Qwen3], model: str) -> Qwen3:
    """What `load` gives. Raises UserError on every host if it fails on any."""
    loaded, faults = None, list[str]()
    try:
        loaded = load()
    except (UserError, ModelError) as error:
        faults = str(error).splitlines()
    failed = multihost_utils.process_allgather(np.array(bool(faults)))
    others = [host for host, bad in enumerate(failed.ravel()) if bad]
    if loaded is None or others:
        told = ", ".join(map(str, others))
        raise UserError(*faults or [f"model: host {told} cannot load {model}; see its log"])
    return loaded


def _todo(job: Job) -> list[Part]:
    """The parts without a file, as the first host sees it: each may see others at this moment."""
    there = output.finished(job.folder)
    missing = np.array([part.number not in there for part in job.parts])
    agreed = multihost_utils.broadcast_one_to_all(missing)
    return [part for part, wanted in zip(job.parts, agreed, strict=True) if wanted]
