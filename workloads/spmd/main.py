"""The job for one's own program: `python -m workloads.spmd.main --slice --settings --output`.

This is the driver. It waits for the slices, runs the program on every host of them, and again after
a failure as often as is allowed.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from workloads import entrypoint
from workloads.contract import SliceContract
from workloads.data import storage
from workloads.errors import UserError
from workloads.log import say
from workloads.program_settings import SpmdSettings
from workloads.slices import SLICE_TIMEOUT_S, wait_for_slices

RESULT = "result.json"


class Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    returned: Any
    """By the function on the first host."""
    attempts: int
    wall_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 after a line for each thing to mend."""
    parser = argparse.ArgumentParser(prog="workloads.spmd.main", description=__doc__)
    parser.add_argument("--slice", required=True, help="SliceContract as JSON")
    parser.add_argument("--settings", required=True, help="SpmdSettings as JSON")
    parser.add_argument("--output", required=True, help="folder or URL that all hosts share")
    parser.add_argument("--code", help="folder that is brought to every host, as its work folder")
    parser.add_argument("--slice-timeout-s", type=float, default=SLICE_TIMEOUT_S)
    arguments = parser.parse_args(argv)
    return entrypoint.run(lambda: _main(arguments))


def _main(arguments: argparse.Namespace) -> None:
    started = time.monotonic()
    contract = entrypoint.contract(arguments.slice)
    settings = entrypoint.settings(SpmdSettings, arguments.settings)
    if arguments.code and not Path(arguments.code).is_dir():
        raise UserError(f"code: {arguments.code} is no folder; correct the path")
    output = storage.absolute(arguments.output)
    entrypoint.connect({"working_dir": arguments.code} if arguments.code else None)
    attempts, returned = _attempts(contract, settings, output, arguments.slice_timeout_s)
    result = Result(
        returned=returned, attempts=attempts, wall_s=round(time.monotonic() - started, 2)
    )
    storage.write_atomically(storage.join(output, RESULT), result.model_dump_json(indent=2))
    say(f"{settings.program} ended on all hosts; written to {storage.join(output, RESULT)}")


def _attempts(
    contract: SliceContract, settings: SpmdSettings, output: str, slice_timeout_s: float
) -> tuple[int, Any]:
    """How many it took, and what the program returned. Raises UserError when none is left."""
    from workloads.spmd import run

    most, number = settings.max_failures + 1, 0
    while True:
        number += 1
        wait_for_slices(contract, slice_timeout_s)
        ended = run.attempt(contract, settings, output, number)
        if not isinstance(ended, run.Failure):
            return number, ended.returned
        run.show(ended)
        if not ended.again or number == most:
            raise UserError(*ended.faults)
        say(f"attempt {number} of {most} failed: {ended.faults[0]}")


if __name__ == "__main__":
    sys.exit(main())
