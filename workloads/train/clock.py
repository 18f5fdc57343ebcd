"""Where a run's time goes, and how much of it becomes training."""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Work:
    """What one step is."""

    tokens: int
    flops: float
    """Those that the model asks for."""
    peak_flops_per_s: float | None
    """Of all devices. None where the declared peak is not theirs."""


@dataclass(frozen=True)
class Pace:
    """How the steps since the last line went."""

    tokens_per_s: float
    step_s: float
    utilisation: float | None
    """Part of the peak that went into the model. None where no peak is known."""
    goodput: float
    """Part of the time since the run began, attempts before this one included, that went into
    steps whose result is kept."""

    def metrics(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        reached = "" if self.utilisation is None else f"  MFU {100 * self.utilisation:.1f} %"
        return (
            f"tokens/s {self.tokens_per_s:.0f}  step {1e3 * self.step_s:.0f} ms{reached}"
            f"  goodput {100 * self.goodput:.1f} %"
        )


class Clock:
    """The time of this attempt, phase by phase, and that of all in steps that count."""

    def __init__(self, work: Work, began_unix_s: float) -> None:
        """`began_unix_s`: when the run was first started."""
        self.wall_s: dict[str, float] = defaultdict(float)
        self.counted_s = 0.0
        """Spent in steps that count, up to the last lap. A checkpoint carries it on, so that what
        was computed after it and lost does not count."""
        self._work = work
        self._began_unix_s = began_unix_s
        self._rates: list[float] = []
        self._waited_s = 0.0
        self._waited_before_s = 0.0
        self._mark = time.monotonic()

    def lap(self, phase: str) -> float:
        """Seconds since the last lap, which were spent in `phase`."""
        now = time.monotonic()
        wall_s, self._mark = now - self._mark, now
        self.wall_s[phase] += wall_s
        return wall_s

    def steps(self, count: int) -> Pace:
        """Of the `count` steps since the last lap.

        The first step of an attempt waits for the compiler and for the first rows, and counts for
        neither speed nor goodput.
        """
        compiles = "first step" not in self.wall_s
        wall_s = self.lap("first step" if compiles else "train")
        if not compiles:
            self._rates.append(count * self._work.tokens / wall_s)
            self.counted_s += wall_s - (self._waited_s - self._waited_before_s)
            self._waited_before_s = self._waited_s
        rate = count * self._work.tokens / wall_s
        return Pace(rate, wall_s / count, self._utilisation(rate), self.goodput())

    def fetch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches, and how long the steps wait for them, the first apart."""
        iterator = iter(batches)
        while True:
            started = time.monotonic()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            if "first step" in self.wall_s:
                self._waited_s += time.monotonic() - started
            yield batch

    def goodput(self) -> float:
        return self.counted_s / (time.time() - self._began_unix_s)

    def waited(self) -> float | None:
        """Part of the steps' time in which they waited for data."""
        return self._waited_s / self.wall_s["train"] if self._rates else None

    def tokens_per_s(self) -> float | None:
        """The median of the laps; None before the second one."""
        return statistics.median(self._rates) if self._rates else None

    def utilisation(self) -> float | None:
        rate = self.tokens_per_s()
        return None if rate is None else self._utilisation(rate)

    def _utilisation(self, tokens_per_s: float) -> float | None:
        peak = self._work.peak_flops_per_s
        return peak and tokens_per_s * self._work.flops / self._work.tokens / peak
