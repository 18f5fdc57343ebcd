"""Progress lines for people.

Each starts with `raytpu | `, so whoever tails a job's log picks them out of Ray's own lines; those
of a worker have Ray's "(name pid=...) " before that.
"""

import logging
import sys

_logger = logging.getLogger("raytpu")


def say(message: str) -> None:
    """One line on standard output, at once."""
    if not _logger.handlers:  # on first use: importing a module changes no logging
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("raytpu | %(message)s"))
        _logger.addHandler(handler)
        _logger.setLevel(logging.INFO)
        _logger.propagate = False  # Ray gives the root logger of a worker a format of its own
    _logger.info(message)
