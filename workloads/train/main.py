"""The training job: `python -m workloads.train.main --slice --settings --corpus --output`.

This is the driver. It refuses what cannot work before it takes the slice, waits for the slice, or
for another that was named, and hands over to the loop that runs on every host.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from workloads import entrypoint
from workloads.contract import SliceContract
from workloads.data import corpus as corpora
from workloads.data import storage
from workloads.errors import UserError, explain
from workloads.log import say
from workloads.model.config import ModelError
from workloads.settings import TrainSettings
from workloads.slices import SLICE_TIMEOUT_S, first_whole, most_whole, scaling
from workloads.train import run
from workloads.train.job import Job
from workloads.train.run import Result, Stopped

START_ATTEMPTS = SLICE_TIMEOUT_S // 60
"""One that finds no whole slice, or loses it while it starts, ends after a minute."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 after a line for each thing to mend."""
    parser = argparse.ArgumentParser(prog="workloads.train.main", description=__doc__)
    parser.add_argument("--slice", required=True, help="SliceContract as JSON")
    fewer = parser.add_mutually_exclusive_group()
    fewer.add_argument(
        "--fallback", action="append", default=[], help="another slice to take if it does not come"
    )
    fewer.add_argument("--min-slices", type=int, help="go on with so many if there are no more")
    parser.add_argument("--settings", required=True, help="TrainSettings as JSON")
    parser.add_argument("--corpus", required=True, help="output of the data job")
    parser.add_argument("--base", type=Path, help="checkpoint to start from, a folder")
    parser.add_argument("--output", required=True, help="folder or URL that all hosts share")
    parser.add_argument(
        "--slice-timeout-s", type=float, default=SLICE_TIMEOUT_S, help="for each slice in turn"
    )
    arguments = parser.parse_args(argv)
    return entrypoint.run(lambda: _main(arguments))


def _main(arguments: argparse.Namespace) -> None:
    jobs = _jobs(arguments)
    job = jobs[0]
    if result := run.claim(job.output, job.settings, job.corpus.digest, job.base_digest()):
        say(f"this run is finished: {job.url(run.RESULT)}; choose another output to train anew")
        _tell(result)
        return
    entrypoint.connect()
    say(job.batches.told(job.corpus.train.rows, job.settings.steps))
    _tell(_train(jobs, _choice(jobs, arguments)))


def _jobs(arguments: argparse.Namespace) -> list[Job]:
    """The run on its slice, and on each other that it may take instead.

    Raises UserError for all that is wrong with the arguments, or does not fit.
    """
    faults: dict[str, None] = {}  # a set that keeps the order: slices may share a fault

    def read(reader: Callable[[], Any]) -> Any:
        try:
            return reader()
        except UserError as error:
            faults.update(dict.fromkeys(error.faults))
        return None

    contract = read(lambda: entrypoint.contract(arguments.slice))
    others = [read(partial(entrypoint.contract, text)) for text in arguments.fallback]
    settings = read(lambda: entrypoint.settings(TrainSettings, arguments.settings))
    corpus = read(lambda: corpora.load(arguments.corpus))
    if faults:
        raise UserError(*faults)
    output, base = storage.absolute(arguments.output), arguments.base and arguments.base.absolute()
    job = Job(contract, settings, corpus, arguments.corpus, output, base)
    if arguments.min_slices is not None:
        job = replace(job, most_slices=contract.slices)
        others = read(partial(_fewer, contract, arguments.min_slices)) or []
    jobs = [job, *(read(partial(job.on, other)) for other in others)]
    for one in filter(None, jobs):
        read(one.check)
    if faults:
        raise UserError(*faults)
    return jobs


def _train(jobs: list[Job], choose: Callable[[], SliceContract]) -> Result:
    """Goes on as often as hosts are taken away: each time with a step more at least."""
    from ray.train import ControllerError, TrainingFailedError

    # A host on spot capacity has 15 s after its notice, and Ray would look every 5.
    os.environ.setdefault("RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S", "1")
    # What hosts tell waits until Ray has fetched what they told before: it would every 2 s.
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.25")
    by_slice = {job.contract: job for job in jobs}
    failures = Counter[bool]()
    while True:
        job = by_slice[choose()]
        if job is not jobs[0]:
            say(f"taking {_described(job)} instead, mesh {job.settings.mesh}")
        try:
            outcome = _fit(job)
        except TrainingFailedError as error:
            # Ray has tried again, but knows of no other slices. Of an elastic run it has not.
            unstarted = isinstance(error, ControllerError)
            failures[unstarted] += 1
            elastic, others = job.most_slices is not None, len(jobs) > 1
            limit = START_ATTEMPTS if unstarted and elastic else job.settings.max_failures
            if failures[unstarted] > limit or not (elastic or (unstarted and others)):
                raise
            say(f"{_described(job)} failed: {explain(error)[0]}; looking for what is there")
            continue
        if isinstance(outcome, Result):
            return outcome
        if outcome.grows:
            say(f"a slice has come: step {outcome.step} is saved; going on with it")
        else:
            say(
                f"stop notice: step {outcome.step} is saved; going on when the slice is whole again"
            )


def _fewer(contract: SliceContract, least: int) -> list[SliceContract]:
    """All numbers of these slices below the declared one. Raises UserError for none."""
    if not 1 <= least <= contract.slices:
        raise UserError(
            f"--min-slices: {least} of {contract.slices} slices; use 1 to {contract.slices}"
        )
    return [replace(contract, slices=count) for count in range(contract.slices - 1, least - 1, -1)]


def _choice(jobs: list[Job], arguments: argparse.Namespace) -> Callable[[], SliceContract]:
    """Which slices to take, of those that are there when it is called."""
    contracts, timeout_s = [job.contract for job in jobs], arguments.slice_timeout_s
    if arguments.min_slices is None:
        return partial(first_whole, contracts, timeout_s)
    return partial(most_whole, contracts[0], arguments.min_slices, timeout_s)


def _described(job: Job) -> str:
    most, slices = job.most_slices, job.contract.slices
    return f"slice {job.contract.name}" if most is None else f"{slices} of {most} slices"


def _fit(job: Job) -> Result | Stopped:
    from ray.data import ExecutionOptions, ExecutionResources
    from ray.train import DataConfig, FailureConfig, RunConfig
    from ray.train.v2.jax import JaxTrainer

    from workloads.train.before import BeforeStart
    from workloads.train.progress import Progress

    contract = job.contract
    before = BeforeStart(contract, job.url(run.CHECKPOINTS))
    # A task for each host keeps all of them fed; more would only make processes.
    reading = ExecutionOptions(
        preserve_order=True, resource_limits=ExecutionResources(cpu=contract.workers)
    )
    trainer = JaxTrainer(
        _worker,
        train_loop_config={"job": job},
        scaling_config=scaling(contract),
        run_config=RunConfig(
            name="train",
            storage_path=job.url("ray"),
            callbacks=[Progress(job.output), before],  # pyright: ignore[reportArgumentType] # Ray takes its own kinds too
            failure_config=FailureConfig(
                max_failures=0 if job.most_slices else job.settings.max_failures,
                controller_failure_limit=0 if job.most_slices else START_ATTEMPTS,
            ),
        ),
        datasets=_datasets(job),
        dataset_config=DataConfig(execution_options=reading),  # pyright: ignore[reportArgumentType] # its hint is wrong
    )
    outcome = trainer.fit().return_value
    if isinstance(outcome, Result | Stopped):
        return outcome
    raise outcome if isinstance(outcome, UserError) else RuntimeError("Ray lost the result")


def _datasets(job: Job) -> Any:
    """Functions, which Ray calls anew for each worker group: a restart reads on from its step."""
    from workloads.train import stream
    from workloads.train.checkpoints import latest_step

    def training() -> Any:
        steps = range(latest_step(job.url(run.CHECKPOINTS)), job.settings.steps)
        return stream.training(job.corpus_url, job.corpus, job.batches, job.settings.seed, steps)

    return {
        "train": training,
        "held_out": lambda: stream.held_out(job.corpus_url, job.corpus, job.batches),
    }


def _worker(config: dict[str, Any]) -> Result | Stopped | UserError:
    """Runs on every host. A refusal is returned, not raised: trying again would not help."""
    from workloads.train.loop import train  # JAX would take the driver's TPU

    try:
        return train(config["job"])
    except UserError as error:
        return error
    except ModelError as error:
        return UserError(*(f"{line}; mend or change the model" for line in str(error).splitlines()))


def _tell(result: Result) -> None:
    say(
        f"held-out loss {result.held_out_loss:.3f} nats a token, against a unigram entropy of "
        f"{result.unigram_entropy:.3f}"
    )
    if result.held_out_loss >= result.unigram_entropy:
        say("warning: no better than knowing how often each token occurs; train longer")
    rate = "too short to tell" if result.tokens_per_s is None else f"{result.tokens_per_s:.0f}"
    phases = ", ".join(f"{phase} {wall_s:.1f} s" for phase, wall_s in result.wall_s.items())
    waited = "" if result.waited is None else f" ({100 * result.waited:.1f} % waiting for data)"
    say(f"{result.steps} steps; tokens/s {rate}{waited}; {phases}")
    goodput = "not known" if result.goodput is None else f"{100 * result.goodput:.1f} %"
    reached = (
        "not measured, as it is of a TPU's peak"
        if result.utilisation is None
        else f"{100 * result.utilisation:.1f} %"
    )
    say(f"goodput {goodput} of the time since the run began; model FLOPs utilisation {reached}")


if __name__ == "__main__":
    sys.exit(main())
