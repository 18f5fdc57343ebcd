"""A replica over several hosts: a process on each runs the same programs in the same order.

The replica decides what runs next, with no chip of its own, and asks every host for it; all compute
the same tokens, over one mesh. It is the first host's neighbour: Ray places it by the resource that
only the first host of a slice has, so a slice holds one replica, and the chips of that slice are
then reserved by its name. For parts of a slice there is no such resource.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.tpu import SlicePlacementGroup

from workloads.contract import SliceContract
from workloads.errors import UserError, explain
from workloads.hosts import Host, number_faults
from workloads.serve.completion import Sampling
from workloads.serve.reservation import Held, placed, variables
from workloads.settings import MeshSettings, ServeSettings
from workloads.slice_group import (
    JOIN_TIMEOUT_S,
    START_TIMEOUT_S,
    HostActor,
    Member,
    Rendezvous,
    ask,
    rendezvous,
    start,
)
from workloads.slices import check_devices

LOAD_TIMEOUT_S = 1800
"""For the weights. A folder that is a bucket gives some hundred MB/s."""
COMPILE_TIMEOUT_S = 1800
STEP_TIMEOUT_S = 60
"""For a token or a prompt, which take milliseconds to seconds: what takes longer hangs."""
PING_TIMEOUT_S = 20
"""For an answer that computes nothing, from a host that computes."""


class HostPart(HostActor):
    """One host's part of a replica. Holds its chips."""

    def load(
        self,
        place: Rendezvous,
        tpu: SliceContract,
        folder: Path,
        settings: ServeSettings,
        axes: MeshSettings,
    ) -> None:
        """Raises UserError or ModelError, and RuntimeError if another host does not come."""
        self.join(place, JOIN_TIMEOUT_S)
        check_devices(tpu)
        from workloads.serve import batch

        self._batch = batch.load(folder, settings, axes)

    def warm_up(self) -> None:
        self._batch.warm_up()

    def start(self, row: int, prompt: Sequence[int], sampling: Sampling) -> int:
        return self._batch.start(row, prompt, sampling)

    def step(self) -> list[int]:
        return self._batch.step()


class Hosts:
    """The rows of a batch over the hosts that are held, each call made on every one of them.

    Raises UserError that names the host which fails, is lost or does not answer in time: the others
    then hang in a collective, and only a new replica helps.
    """

    def __init__(
        self,
        held: Held,
        tpu: SliceContract,
        folder: Path,
        settings: ServeSettings,
        axes: MeshSettings,
    ) -> None:
        """Raises UserError if what is held is not what was declared."""
        self.rows, self.length = settings.max_batch, settings.max_sequence_length
        pg, chips = placed(held), held.chips_per_host
        actors = [start(HostPart, pg, rank, chips) for rank in range(tpu.hosts)]
        hosts = _started(tpu, actors)
        whole = isinstance(held, SlicePlacementGroup)
        if faults := number_faults(tpu, hosts) if whole else []:
            raise UserError("; ".join(faults))
        self._members = [Member(host, 0, actor) for host, actor in zip(hosts, actors, strict=True)]
        places = [
            replace(place, variables=more)
            for place, more in zip(rendezvous(self._members), variables(held, hosts), strict=True)
        ]
        one = replace(tpu, slices=1)  # of each replica
        calls = [
            actor.load.remote(place, one, folder, settings, axes)
            for place, actor in zip(places, actors, strict=True)
        ]
        self._get(calls, LOAD_TIMEOUT_S, "to load its part of the model")

    def warm_up(self) -> None:
        calls = [member.actor.warm_up.remote() for member in self._members]
        self._get(calls, COMPILE_TIMEOUT_S, "to compile")

    def start(self, row: int, prompt: Sequence[int], sampling: Sampling) -> int:
        calls = [member.actor.start.remote(row, prompt, sampling) for member in self._members]
        return self._get(calls, STEP_TIMEOUT_S, "to start a row")

    def step(self) -> list[int]:
        calls = [member.actor.step.remote() for member in self._members]
        return self._get(calls, STEP_TIMEOUT_S, "for a step")

    async def check(self) -> None:
        """Raises unless the process of every host answers."""
        pings = [member.actor.ping.remote() for member in self._members]
        try:
            await asyncio.wait_for(asyncio.gather(*pings), PING_TIMEOUT_S)
        except TimeoutError:
            told = f"not all of {len(pings)} hosts answered within {PING_TIMEOUT_S} s"
            raise TimeoutError(told) from None

    def _get(self, calls: list[ray.ObjectRef], timeout_s: float, what: str) -> Any:
        """What all calls return."""
        try:
            first, *others = ray.get(calls, timeout=timeout_s)
        except RayError:  # one failed, or is late: asked once more, one by one, it is known which
            asked = f"{what} for which it had {timeout_s:.0f} s"
            faults = ask(self._members, calls, 1, asked).faults
            raise UserError("; ".join(faults)) from None
        if any(other != first for other in others):
            raise RuntimeError(f"asked {what}, the hosts disagree: {first} and {others}")
        return first


def _started(tpu: SliceContract, actors: Sequence[Any]) -> list[Host]:
    try:
        return ray.get([actor.host.remote() for actor in actors], timeout=START_TIMEOUT_S)
    except RayError as error:
        raise UserError(
            f"slice {tpu.name}: no process on each of its {tpu.hosts} hosts within "
            f"{START_TIMEOUT_S} s ({' '.join(explain(error))}); see the logs of its hosts"
        ) from None
