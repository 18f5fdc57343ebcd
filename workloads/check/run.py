"""The check, from the driver's side: one stage after the other, on all hosts at once.

A stage that a host does not finish ends the check, for the next would wait for that host for ever.
What was found until then is reported all the same.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from workloads import hosts, versions
from workloads.check import report as reports
from workloads.check.host import CheckHost
from workloads.check.measure import OPERATIONS, SIZES_MIB, Timing
from workloads.check.report import Collective, HostReport, Report
from workloads.contract import SliceContract
from workloads.errors import UserError
from workloads.log import say
from workloads.program_settings import CheckSettings
from workloads.slice_group import JOIN_TIMEOUT_S, Answers, Member, ask, members, rendezvous


def check(contract: SliceContract, settings: CheckSettings) -> Report:
    """Takes the slices, which are whole and idle, and gives them back. What is wrong is in it."""
    started = time.monotonic()
    run = _Run(contract, settings)
    try:
        with members(contract, CheckHost) as group:
            run.stages(group)
    except UserError as error:  # cannot be held, or numbered wrongly
        run.faults += error.faults
    return run.report(time.monotonic() - started)


class _Run:
    """One check, and what it has found so far."""

    def __init__(self, contract: SliceContract, settings: CheckSettings) -> None:
        self.faults: list[str] = []
        self._contract = contract
        self._settings = settings
        self._found: list[HostReport] = []
        self._collectives: list[Collective] = []
        self._deadline = time.monotonic() + settings.limit_s

    def report(self, wall_s: float) -> Report:
        contract = self._contract
        return Report(
            slice=contract.name,
            shape=f"{contract.slices} x {contract.accelerator_type} {contract.topology}, "
            f"{contract.hosts} hosts of {contract.chips_per_host} chips each",
            hosts=tuple(self._found),
            collectives=tuple(self._collectives),
            faults=tuple(self.faults),
            wall_s=round(wall_s, 2),
        )

    def stages(self, group: Sequence[Member]) -> None:
        """Stage by stage, until one finds a fault that those after it would hang on."""
        self._found = [
            HostReport(
                host=str(member.host),
                slice_index=member.slice_index,
                worker_id=member.host.worker_id,
                address=member.host.address,
            )
            for member in group
        ]
        for stage in (self._versions, self._join, self._devices, self._products):
            stage(group)
            if self.faults:
                return
        self._all_collectives(group)
        self.faults += reports.slow_faults(self._found, self._settings.slow_factor)

    def _versions(self, group: Sequence[Member]) -> None:
        contract = self._contract
        answers = self._ask(
            group, "for its versions", lambda _, actor: actor.versions.remote(contract)
        )
        self._keep(answers, lambda found: {"versions": found[0]})
        answered = [self._found[place] for place in answers.values]
        self.faults += reports.version_faults(versions.here(), answered)
        for place, (_, stale) in answers.values.items():
            if contract.slices == 1:  # of several, the check sets them anew
                self.faults += (f"{group[place].host}: {fault}" for fault in stale)

    def _join(self, group: Sequence[Member]) -> None:
        say(f"check: {len(group)} hosts are there; starting JAX over them")
        places = rendezvous(group)
        limit_s = min(JOIN_TIMEOUT_S, self._left_s())
        self._ask(
            group, "to join JAX", lambda i, actor: actor.join.remote(places[i], limit_s), limit_s
        )

    def _devices(self, group: Sequence[Member]) -> None:
        answers = self._ask(group, "for its devices", lambda _, actor: actor.devices.remote())
        self._keep(answers, lambda found: {"process": found[0], "devices": found[1]})
        if not answers.faults:
            self.faults += reports.device_faults(self._contract, self._found)

    def _products(self, group: Sequence[Member]) -> None:
        repeats = self._settings.repeats
        answers = self._ask(
            group, "for a product of matrices", lambda _, actor: actor.products.remote(repeats)
        )
        self._keep(answers, lambda found: {"products_s": found})

    def _all_collectives(self, group: Sequence[Member]) -> None:
        """Over each slice by itself, all at once; and then over all of them."""
        parts: dict[str, list[int]] = {}
        for place, member in enumerate(group):
            parts.setdefault(member.host.slice_name, []).append(place)
        rounds = [parts]
        if len(parts) > 1:
            rounds.append({f"all {len(parts)} slices": [*range(len(group))]})
        for over in rounds:
            for operation in OPERATIONS:
                for size_mib in self._sizes_mib():
                    self._collective(group, over, operation, size_mib)
                    if self.faults:
                        return

    def _sizes_mib(self) -> tuple[int, ...]:
        return self._settings.sizes_mib or SIZES_MIB[self._found[0].devices[0].platform]

    def _collective(
        self, group: Sequence[Member], over: dict[str, list[int]], operation: str, size_mib: int
    ) -> None:
        together = {place: places for places in over.values() for place in places}
        answers = self._ask(
            group,
            f"for an {operation} of {size_mib} MiB",
            lambda place, actor: actor.collective.remote(
                operation,
                size_mib,
                self._settings.repeats,
                [self._found[other].process for other in together[place]],
            ),
        )
        for name, places in over.items():
            timings: dict[int, Timing] = {
                place: answers.values[place] for place in places if place in answers.values
            }
            if timings:
                self._collectives.append(reports.collective(name, [*timings.values()]))
            for place, timing in timings.items():
                self.faults += reports.wrong_faults(name, self._found[place], timing)

    def _ask(
        self,
        group: Sequence[Member],
        what: str,
        call: Callable[[int, Any], Any],
        limit_s: float | None = None,
    ) -> Answers:
        calls = [call(place, member.actor) for place, member in enumerate(group)]
        answers = ask(group, calls, self._left_s() if limit_s is None else limit_s, what)
        self.faults += answers.faults
        return answers

    def _keep(self, answers: Answers, parts: Callable[[Any], dict[str, Any]]) -> None:
        for place, found in answers.values.items():
            self._found[place] = self._found[place].model_copy(update=parts(found))

    def _left_s(self) -> float:
        return max(1.0, self._deadline - time.monotonic())


def absent(contract: SliceContract) -> Iterator[str]:
    """Why no slice is whole: which hosts of those that have begun to come up are not there."""
    import ray

    for name, found in sorted(hosts.of_nodes(contract, ray.nodes()).items()):
        numbers = {host.worker_id for host in found}
        if missing := sorted({*range(contract.hosts)} - numbers):
            yield (
                f"slice {name}: {len(found)} of {contract.hosts} hosts are in the cluster, and "
                f"host {', '.join(map(str, missing))} is not; see its pod"
            )
