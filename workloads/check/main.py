"""The slice check as a job: `python -m workloads.check.main --slice --settings --output`.

Says what it found, writes it to OUTPUT/result.json, and fails with a line for each fault.
"""

import argparse
import sys
from collections.abc import Sequence

from workloads import entrypoint
from workloads.contract import SliceContract
from workloads.data import storage
from workloads.errors import UserError
from workloads.log import say
from workloads.program_settings import CheckSettings
from workloads.slices import SLICE_TIMEOUT_S, wait_for_slices

RESULT = "result.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 for a sound slice, or 1 after a line for each fault."""
    parser = argparse.ArgumentParser(prog="workloads.check.main", description=__doc__)
    parser.add_argument("--slice", required=True, help="SliceContract as JSON")
    parser.add_argument("--settings", default="{}", help="CheckSettings as JSON")
    parser.add_argument("--output", required=True, help="folder or URL for the result")
    parser.add_argument("--slice-timeout-s", type=float, default=SLICE_TIMEOUT_S)
    arguments = parser.parse_args(argv)

    def job() -> None:
        contract = entrypoint.contract(arguments.slice)
        settings = entrypoint.settings(CheckSettings, arguments.settings)
        entrypoint.connect()
        result = storage.join(storage.absolute(arguments.output), RESULT)
        check(contract, settings, result, arguments.slice_timeout_s)

    return entrypoint.run(job)


def check(
    contract: SliceContract, settings: CheckSettings, result: str, slice_timeout_s: float
) -> None:
    """In a process that is connected to Ray. Raises UserError with all faults of the slice."""
    from workloads.check import report as reports
    from workloads.check import run

    try:
        wait_for_slices(contract, slice_timeout_s)
    except UserError as error:
        raise UserError(*error.faults, *run.absent(contract)) from None
    report = run.check(contract, settings)
    storage.write_atomically(result, report.model_dump_json(indent=2))
    for line in reports.lines(report):
        say(line)
    say(f"written to {result}")
    if report.faults:
        raise UserError(*report.faults)


if __name__ == "__main__":
    sys.exit(main())
