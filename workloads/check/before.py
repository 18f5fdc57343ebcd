"""Checks a job's slice, and then does the job: `python -m workloads.check.before MODULE ARGUMENTS`.

MODULE is that of the job, and ARGUMENTS are its own, of which --slice and --output are read here. A
slice with a fault ends the job before it has begun, with the lines of `workloads.check.main`.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from workloads import entrypoint
from workloads.check.main import check
from workloads.data import storage
from workloads.program_settings import CheckSettings
from workloads.slices import SLICE_TIMEOUT_S

RESULT = "slice-check.json"


def main(argv: Sequence[str] | None = None) -> int:
    """The job's exit code, or 1 after a line for each fault of its slice."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    parser = argparse.ArgumentParser(prog="workloads.check.before", description=__doc__)
    parser.add_argument("job", help="module with a function main(argv)")
    parser.add_argument("--slice", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--slice-timeout-s", type=float, default=SLICE_TIMEOUT_S)
    arguments, _ = parser.parse_known_args(words)
    if code := entrypoint.run(lambda: _check(arguments)):
        return code
    module, *rest = words
    return importlib.import_module(module).main(rest)


def _check(arguments: argparse.Namespace) -> None:
    contract = entrypoint.contract(arguments.slice)
    entrypoint.connect()
    import ray

    try:
        result = storage.join(storage.absolute(arguments.output), RESULT)
        check(contract, CheckSettings(), result, arguments.slice_timeout_s)
    finally:
        ray.shutdown()  # the job connects by itself; and nothing of the check holds a chip


if __name__ == "__main__":
    sys.exit(main())
