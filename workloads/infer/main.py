"""The batch inference job: `python -m workloads.infer.main --slice --settings --model --output`.

This is the driver. It refuses what cannot work and counts the prompts before it takes the slice,
hands over to the loop that runs on every host, and then makes the parts one output.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from workloads import entrypoint
from workloads.contract import SliceContract
from workloads.data import sources, storage
from workloads.data.cluster import on_cluster
from workloads.data.sources import Source
from workloads.errors import UserError
from workloads.infer import output
from workloads.infer.job import Job, Request
from workloads.infer.output import Result
from workloads.infer.plan import File, parts
from workloads.infer.scan import SUFFIXES, id_faults, scan
from workloads.log import say
from workloads.model.config import fingerprint
from workloads.settings import InferSettings
from workloads.slices import SLICE_TIMEOUT_S, scaling, wait_for_slices


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 after a line for each thing to mend."""
    parser = argparse.ArgumentParser(prog="workloads.infer.main", description=__doc__)
    parser.add_argument("--slice", required=True, help="SliceContract as JSON")
    parser.add_argument("--settings", required=True, help="InferSettings as JSON")
    parser.add_argument("--model", required=True, help="folder in Hugging Face's layout")
    parser.add_argument("--output", required=True, help="folder or URL that all hosts share")
    parser.add_argument("--slice-timeout-s", type=float, default=SLICE_TIMEOUT_S)
    arguments = parser.parse_args(argv)
    return entrypoint.run(lambda: _main(arguments))


def _main(arguments: argparse.Namespace) -> None:
    request, found = _read(arguments)
    entrypoint.connect()
    job = _planned(request, found)
    if {part.number for part in job.parts} - output.finished(job.folder):
        wait_for_slices(request.contract, arguments.slice_timeout_s)
        rows_per_s = _fit(job)
    else:
        say(f"this run is finished: {job.folder}; remove it to compute it anew")
        earlier = output.read_result(request.output)
        rows_per_s = earlier.rows_per_s if earlier and earlier.run == job.run else None
    _tell(output.commit(request.output, job.run, job.parts, rows_per_s), job)


def _read(arguments: argparse.Namespace) -> tuple[Request, tuple[Source, ...]]:
    """Raises UserError for all that is wrong with the arguments, and with what they name."""
    faults: list[str] = []

    def kept(reader: Callable[[], Any]) -> Any:
        try:
            return reader()
        except UserError as error:
            faults.extend(error.faults)
        except ValueError as error:
            faults.append(f"--slice: {error}; pass what the slice declaration gives")
        return None

    contract = kept(lambda: SliceContract.from_json(arguments.slice))
    settings = kept(lambda: entrypoint.settings(InferSettings, arguments.settings))
    if faults:
        raise UserError(*faults)
    target = storage.absolute(arguments.output)
    request = Request(contract, settings, storage.absolute(arguments.model), target)
    kept(request.check)
    found = kept(lambda: sources.find(settings.prompts, SUFFIXES))
    if faults:
        raise UserError(*faults)
    return request, found


def _planned(request: Request, found: Sequence[Source]) -> Job:
    """Raises UserError for all that is wrong with the files."""
    started = time.monotonic()
    columns = request.columns
    scans = on_cluster(found, lambda _, source: scan(source, columns))
    if faults := [fault for one in scans for fault in one.faults] or [*id_faults(scans, columns)]:
        raise UserError(*faults)
    files: list[File] = [one.file for one in scans]
    run = output.run_id(request.settings, files, fingerprint(request.model))
    job = Job(request, run, parts(files, request.settings.rows_per_part))
    rows = sum(file.rows for file in files)
    say(
        f"{rows:,} prompts in {len(files)} files, counted in {time.monotonic() - started:.1f} s; "
        f"{len(job.parts)} parts"
    )
    return job


def _fit(job: Job) -> float | None:
    """Rows a second, as the loop found."""
    from ray.train import FailureConfig, RunConfig
    from ray.train.v2.jax import JaxTrainer

    from workloads.train.before import BeforeStart
    from workloads.train.progress import Progress

    contract = job.request.contract
    trainer = JaxTrainer(
        _worker,
        train_loop_config={"job": job},
        scaling_config=scaling(contract),
        run_config=RunConfig(
            name=job.run,
            storage_path=storage.join(job.request.output, "ray"),
            callbacks=[Progress(job.folder), BeforeStart(contract, job.folder)],  # pyright: ignore[reportArgumentType] # Ray takes its own kinds too
            failure_config=FailureConfig(
                max_failures=job.request.settings.max_failures,
                # An attempt that finds no whole slice ends after a minute.
                controller_failure_limit=SLICE_TIMEOUT_S // 60,
            ),
        ),
    )
    outcome = trainer.fit().return_value
    if isinstance(outcome, UserError):
        raise outcome
    return outcome


def _worker(config: dict[str, Any]) -> float | UserError | None:
    """Runs on every host. A refusal is returned, not raised: trying again would not help."""
    from workloads.infer.loop import infer  # JAX would take the driver's TPU

    try:
        return infer(config["job"])
    except UserError as error:
        return error


def _tell(result: Result, job: Job) -> None:
    rate = "too short to tell" if result.rows_per_s is None else f"{result.rows_per_s:.1f}"
    rows = sum(part.rows for part in job.parts)
    say(
        f"{rows:,} rows in, {result.rows:,} rows out in {len(result.files)} files; "
        f"{result.prompt_tokens:,} tokens of prompts, {result.completion_tokens:,} of "
        f"completions; rows/s {rate}"
    )
    for error, count in sorted(result.errors.items()):
        say(f"warning: {count:,} rows without an answer: {error}")
    say(f"written to {storage.join(job.request.output, output.RESULT)}")


if __name__ == "__main__":
    sys.exit(main())
