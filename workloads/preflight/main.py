"""Answers programs with what they need: JSON lines in, a JSON line out for each.

Runs until its input ends. JAX is loaded at the first program that was not measured before.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from workloads.errors import UserError
from workloads.model.config import ModelError
from workloads.preflight.cache import Cache
from workloads.preflight.program import PROGRAM, Answer, ServeStep, TrainStep


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="workloads.preflight.main", description=__doc__)
    parser.add_argument("--cache", required=True, type=Path, help="folder of what was measured")
    cache = Cache(parser.parse_args(argv).cache)
    for line in sys.stdin:
        answer = _answer(PROGRAM.validate_json(line), cache)
        sys.stdout.write(answer.model_dump_json() + "\n")
        sys.stdout.flush()
    return 0


def _answer(program: TrainStep | ServeStep, cache: Cache) -> Answer:
    if (found := cache.read(program)) is not None:
        return Answer(measured=found, cached=True)
    from workloads.preflight.compile import measure

    try:
        measured = measure(program)
    except ModelError as error:
        faults = ", ".join(error.faults)
        return Answer(refused=f"the model cannot be cut so: {faults}; use another mesh or model")
    except UserError as error:
        return Answer(refused=str(error))
    cache.write(program, measured)
    return Answer(measured=measured)


if __name__ == "__main__":
    sys.exit(main())
