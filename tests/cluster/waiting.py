"""What tests of the cluster wait for and look at."""

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

Found = TypeVar("Found")


def wait(condition: Callable[[], Found], limit_s: float = 60) -> Found:
    """Waits until a condition holds, and says which one did not."""
    deadline_s = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"{condition} did not hold within {limit_s} s"
        time.sleep(0.1)
    return found


def running(text: str) -> list[psutil.Process]:
    """Processes with this text in their command line."""
    everyone = psutil.process_iter(["cmdline"])
    return [one for one in everyone if text in " ".join(one.info["cmdline"] or [])]
