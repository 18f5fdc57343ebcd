"""Progress lines for people.

Each starts with `raytpu | `, so whoever tails a job's log picks them out of Ray's own lines; those
of a worker have Ray's "(name pid=...) " before that.
"""

import sys


def say(message: str) -> None:
    """One line on standard output, at once. Not by `logging`, whose root Ray sets up anew."""
    sys.stdout.write(f"raytpu | {message}\n")
    sys.stdout.flush()
