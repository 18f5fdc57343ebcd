"""A program over whole slices, from the driver's side: all hosts run it, or none does."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from workloads.contract import SliceContract
from workloads.log import say
from workloads.program_settings import SpmdSettings
from workloads.slice_group import GRACE_S, Member, members, rendezvous, told
from workloads.spmd.host import Ended, ProgramHost
from workloads.spmd.program import Context, Part


@dataclass(frozen=True)
class Failure:
    """Of the host that failed first; the others fail because of it, or wait for it."""

    faults: tuple[str, ...]
    last_lines: tuple[str, ...]
    again: bool
    """Whether another attempt may end otherwise."""


def attempt(
    contract: SliceContract, settings: SpmdSettings, output: str, number: int
) -> Ended | Failure:
    """Runs the program once on every host; how it ended on the first, or why it did not."""
    with members(contract, ProgramHost) as group:
        context = Context(contract, output, number)
        say(f"attempt {number}: {settings.program} on {len(group)} hosts")
        streams = [
            member.actor.run.options(num_returns="streaming").remote(
                Part(settings.program, settings.args, context, place), settings.env
            )
            for member, place in zip(group, rendezvous(group), strict=True)
        ]
        return _Watch(group, streams, settings.quiet_limit_s).until_ended()


class _Watch:
    """Follows all hosts at once."""

    def __init__(
        self, group: Sequence[Member], streams: Sequence[Any], quiet_limit_s: float
    ) -> None:
        self._group = group
        self._waiting = {stream: place for place, stream in enumerate(streams)}
        self._ended: dict[int, Ended] = {}
        self._quiet_limit_s = quiet_limit_s

    def until_ended(self) -> Ended | Failure:
        deadline = time.monotonic() + self._quiet_limit_s
        while self._waiting and (left_s := deadline - time.monotonic()) > 0:
            ready, _ = ray.wait([*self._waiting], num_returns=1, timeout=left_s)
            for stream in ready:
                self._next(stream)
            if ready and not self._failed:
                deadline = time.monotonic() + self._quiet_limit_s
            elif self._failed:
                deadline = min(deadline, time.monotonic() + GRACE_S)
        if self._failed:
            return self._first_failure()
        return self._hung() if self._waiting else self._ended[0]

    @property
    def _failed(self) -> list[int]:
        return [place for place, ended in self._ended.items() if ended.error]

    def _next(self, stream: Any) -> None:
        place = self._waiting[stream]
        try:
            item = ray.get(next(stream))
        except StopIteration:
            del self._waiting[stream]
            return
        except RayError as error:
            del self._waiting[stream]
            item = Ended(told(error)[-1], at_s=time.time())
        if isinstance(item, Ended):
            self._ended.setdefault(place, item)
        else:
            for line in item:
                say(line)

    def _first_failure(self) -> Failure:
        place = min(self._failed, key=lambda place: self._ended[place].at_s)
        ended = self._ended[place]
        faults = ended.faults or (f"{self._group[place].host}: {ended.error}",)
        # What the first host printed is in the log already.
        return Failure(faults, ended.last_lines if place else (), not ended.faults)

    def _hung(self) -> Failure:
        hosts = ", ".join(str(self._group[place].host) for place in self._waiting.values())
        fault = (
            f"no line for {self._quiet_limit_s:.0f} s, and no end on {hosts}; see where they wait, "
            "or raise quiet_limit_s"
        )
        return Failure((fault,), (), again=True)


def show(failure: Failure) -> None:
    """What the failed host printed last, as it was: a traceback is the program's own affair."""
    for line in failure.last_lines:
        sys.stdout.write(f"  | {line}\n")
