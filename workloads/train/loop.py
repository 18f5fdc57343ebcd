"""The training loop: runs on every host of the slice, one process a host.

Every process makes the same calls in the same order, for most of them are collective; only the
first one speaks and writes.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ray.train
from fsspec.implementations.local import LocalFileSystem
from jax.experimental import multihost_utils

from workloads.data import storage
from workloads.data.corpus import TOKENIZER
from workloads.model import hf, peft, sharding
from workloads.model.config import ModelConfig
from workloads.model.lora import merge
from workloads.model.qwen3 import Qwen3
from workloads.settings import TrainSettings
from workloads.slices import check_devices, idle_slices
from workloads.train import run
from workloads.train.ahead import ahead
from workloads.train.checkpoints import Checkpoints, latest_step
from workloads.train.clock import Clock, Pace, Work
from workloads.train.flops import model_flops
from workloads.train.job import Job
from workloads.train.notice import StopNotice
from workloads.train.profile import Profile
from workloads.train.progress import tell
from workloads.train.run import Result, Stopped
from workloads.train.step import State, Trainer, make_trainer

Batch = dict[str, jax.Array]
PREFETCH = 4  # batches a host keeps ready: a batch is small, and a step must never wait for one


def train(job: Job) -> Result | Stopped:
    """Trains from the latest checkpoint on, evaluates, exports, and writes the result.

    Or saves and ends before that, if the slice is about to be taken away.

    Raises UserError or ModelError, on every host, for what the user has to change.
    """
    check_devices(job.contract)
    config = job.model_config()
    clock = Clock(_work(job, config), run.began_unix_s(job.output))
    mesh = sharding.make_mesh(job.settings.mesh)
    trainer = make_trainer(job.settings, config, mesh, job.base)
    with Checkpoints(job.url(run.CHECKPOINTS), job.settings.keep_checkpoints) as checkpoints:
        first = latest_step(job.url(run.CHECKPOINTS))
        # Ray takes seconds to start what reads: the devices need as long for the state.
        rows = ahead(_rows("train", job)) if first < job.settings.steps else iter(())
        state = _restored(checkpoints, trainer, first) if first else trainer.init()
        clock.counted_s = checkpoints.counted_s(first) if first else 0.0
        parameters = _parameters(state.params) + _parameters(state.frozen)
        tell(_start_line(job, state, first))
        clock.lap("start")
        state, stopped = _steps(Session(job, trainer, checkpoints, clock, rows), state, first)
        checkpoints.wait()
        clock.lap("checkpoint")
    if stopped:
        return stopped
    loss = _evaluate(job, trainer, state)
    clock.lap("evaluate")
    _export(job, trainer.model(state))
    clock.lap("export")
    result = Result(
        steps=job.settings.steps,
        parameters=parameters,
        held_out_loss=loss,
        unigram_entropy=job.corpus.unigram_entropy,
        tokens_per_s=clock.tokens_per_s(),
        utilisation=clock.utilisation(),
        goodput=clock.goodput(),
        waited=clock.waited(),
        wall_s={phase: round(wall_s, 2) for phase, wall_s in clock.wall_s.items()},
    )
    if jax.process_index() == 0:
        run.finish(job.output, result)
    return result


def _work(job: Job, config: ModelConfig) -> Work:
    tokens, length = (
        job.settings.global_batch * job.corpus.sequence_length,
        job.corpus.sequence_length,
    )
    frozen = job.settings.lora is not None
    # The peak is that of the declared chips: of CPUs in their place it says nothing.
    real = jax.devices()[0].platform == "tpu"
    peak = job.contract.peak_flops_per_s if real else None
    return Work(tokens, model_flops(config, tokens, length, frozen=frozen), peak)


def _restored(checkpoints: Checkpoints, trainer: Trainer, step: int) -> State:
    saved = checkpoints.restore(step, trainer.abstract)
    return replace(saved, frozen=trainer.start.frozen())


def _parameters(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def _start_line(job: Job, state: State, first: int) -> str:
    slices = f" of {job.contract.slices} slices" if job.contract.slices > 1 else ""
    trained, still = _parameters(state.params), _parameters(state.frozen)
    parameters = (
        f"{trained:,} of {trained + still:,} parameters" if still else f"{trained:,} parameters"
    )
    return (
        f"mesh {job.settings.mesh}: {jax.device_count()} {jax.devices()[0].device_kind} devices on "
        f"{jax.process_count()} hosts{slices}; {parameters}; "
        + (f"resuming after step {first}" if first else f"starting from {job.base or 'scratch'}")
    )


@dataclass(frozen=True)
class Session:
    """What the steps work with."""

    job: Job
    trainer: Trainer
    checkpoints: Checkpoints
    clock: Clock
    rows: Iterator[Batch]
    """Global batches from the first step on, on all devices."""


def _steps(session: Session, state: State, first: int) -> tuple[State, Stopped | None]:
    """Steps first + 1 to the last, or to where the attempt ends before it."""
    job, trainer, clock = session.job, session.trainer, session.clock
    settings, told, notice = job.settings, first, StopNotice()
    profile = Profile(settings.profile, job.output)
    step, previous, grows = first, jnp.zeros(()), False
    if job.base is not None and first == 0:
        _tell_held_out(session, state, first)
    for step, tokens in _batches(session, first):
        with profile.step(step):
            state, loss = trainer.train(state, tokens)
        # One step waits in the device's queue while another runs: it never idles, and yet a stop
        # notice need not wait for more than two.
        previous.block_until_ready()
        previous = loss
        last = step == settings.steps or notice.ends(step)
        profile.after(step, loss, last=last)
        saves = last or step % settings.checkpoint_every == 0
        evaluates = not last and step % settings.evaluate_every == 0
        # The first step is told apart, for it compiles.
        if not (saves or evaluates or step % settings.log_every == 0 or step == first + 1):
            continue
        _progress(trainer, settings, step, float(loss), clock.steps(step - told))
        told = step
        session.checkpoints.check()
        if saves:
            session.checkpoints.save(step, state, clock.counted_s)
            clock.lap("checkpoint")
            grows = not last and _more_slices(job)
        if evaluates:
            _tell_held_out(session, state, step)
        if last or grows:
            break
    return state, None if step == settings.steps else Stopped(step, grows)


def _more_slices(job: Job) -> bool:
    """Whether a slice is there that an elastic run lacks: asked where nothing would be lost."""
    if not job.lacks_slices:
        return False
    found = idle_slices(job.contract) > 0 if jax.process_index() == 0 else False
    return bool(multihost_utils.broadcast_one_to_all(jnp.int32(found)))


def _batches(session: Session, first: int) -> Iterator[tuple[int, jax.Array]]:
    """The number of each step after `first`, and its tokens: (global_batch, t + 1)."""
    for step, batch in enumerate(session.clock.fetch(session.rows), start=first + 1):
        if step == first + 1:
            _check_position(batch["step"], first)
        # Ray lays batches over a mesh of one axis; ours has several.
        yield step, jax.device_put(batch["tokens"], session.trainer.batch)


def _check_position(steps: jax.Array, first: int) -> None:
    """The stream is opened by Ray's controller, the checkpoint by this process: they must agree."""
    found = int(steps.addressable_shards[0].data[0])
    if found != first:
        raise RuntimeError(f"data starts at step {found}, but the checkpoint is of step {first}")


def _progress(
    trainer: Trainer, settings: TrainSettings, step: int, loss: float, pace: Pace
) -> None:
    rate = float(jnp.asarray(trainer.schedule(step)))
    line = f"step {step}/{settings.steps}  loss {loss:.3f}  {pace}  lr {rate:.2e}"
    tell(line, step=step, loss=loss, **pace.metrics())


def _tell_held_out(session: Session, state: State, step: int) -> None:
    held_out = _evaluate(session.job, session.trainer, state)
    line = f"step {step}/{session.job.settings.steps}  held-out loss {held_out:.3f}"
    tell(line, step=step, held_out_loss=held_out)
    session.clock.lap("evaluate")


def _evaluate(job: Job, trainer: Trainer, state: State) -> float:
    """Nats a token over all held-out rows, each once."""
    losses = targets = 0.0
    for batch in _rows("held_out", job):
        tokens = jax.device_put(batch["tokens"], trainer.batch)
        weights = jax.device_put(batch["weight"], trainer.batch)
        loss, count = trainer.evaluate(state, tokens, weights)
        losses, targets = losses + float(loss), targets + float(count)
    return losses / targets


def _rows(name: str, job: Job) -> Iterable[Batch]:
    """Global batches of a dataset, on all devices."""
    shard = ray.train.get_dataset_shard(name)
    if shard is None:
        raise RuntimeError(f"the trainer was given no dataset {name!r}")
    return shard.iter_jax_batches(batch_size=job.batches.host_batch, prefetch_batches=PREFETCH)


def _export(job: Job, model: Qwen3) -> None:
    """The Hugging Face folder, and that of the adapters, if there are any."""
    if (lora := job.settings.lora) is not None:
        _written(job.url(run.ADAPTER), lambda folder: peft.export(model, folder, lora=lora))
        merge(model)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = Path(scratch, TOKENIZER)
        tokenizer.write_text(job.tokenizer_json())
        _written(
            job.url(run.EXPORT),
            lambda folder: hf.export(model, folder, tokenizer_json=tokenizer, base=job.base),
        )


def _written(url: str, write: Callable[[Path], None]) -> None:
    """The folder that `write` makes, by way of a local one if `url` is in an object store."""
    fs, target = storage.filesystem(url)
    if isinstance(fs, LocalFileSystem):
        write(Path(target))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "whole")
        write(folder)
        if jax.process_index() == 0:
            fs.put(f"{folder}/", target, recursive=True)
