"""Whole slices, held for one program: an actor on each host, in the order of JAX's processes.

What is not run by Ray Train (which does all of this by itself) stands on this: reserve the slices,
whole or not at all; see that each host is there once and under its own number; bring JAX up over
them; and end everything together. Every wait has a limit, and names the hosts it waited for.
"""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util import get_node_ip_address
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from ray.util.tpu import get_tpu_coordinator_env_vars, slice_placement_group

from workloads.contract import SliceContract
from workloads.errors import UserError, explain
from workloads.hosts import Host, number_faults, of_node
from workloads.slices import only_whole

RESERVE_TIMEOUT_S = 60
"""For slices that were whole and idle a moment ago: another job may have been quicker."""
START_TIMEOUT_S = 120
"""For a process on each host, which imports Ray and the program's modules."""
JOIN_TIMEOUT_S = 300
"""For JAX to be up on all hosts: libtpu starts, and each host finds the others."""
GRACE_S = 3
"""Once a host has failed, for what others have to say of it. They may hang for it."""
PING_TIMEOUT_S = 5
_PING = "ping"


class HostActor:
    """One on each host, with all of its chips. Subclasses say what it is for."""

    def host(self) -> Host:
        worker_id = os.environ.get("TPU_WORKER_ID", "")
        return Host(
            slice_name=os.environ.get("TPU_NAME") or get_node_ip_address(),
            worker_id=int(worker_id) if worker_id.isdecimal() else None,
            hostname=socket.gethostname(),
            address=get_node_ip_address(),
        )

    @ray.method(concurrency_group=_PING)
    def ping(self) -> None:
        """Answers at once, whatever else this process is at, unless it is stuck as a whole."""

    def free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind(("", 0))
            return probe.getsockname()[1]

    def join(self, rendezvous: "Rendezvous", timeout_s: float) -> None:
        """Brings JAX up in this process. Raises RuntimeError if others do not come in time."""
        os.environ.update(rendezvous.variables)
        os.environ.setdefault("JAX_PLATFORMS", "tpu")  # it would take a CPU where it finds no TPU
        import jax

        jax.distributed.initialize(
            rendezvous.coordinator,
            rendezvous.processes,
            rendezvous.process,
            initialization_timeout=int(timeout_s),
        )


@dataclass(frozen=True)
class Member:
    """A host that is held, and the actor on it. Its place among all members is its JAX process."""

    host: Host
    slice_index: int
    actor: Any


@dataclass(frozen=True)
class Rendezvous:
    """What one process needs to find the others."""

    coordinator: str
    """host:port of process 0."""
    processes: int
    process: int
    variables: dict[str, str] = field(default_factory=dict)
    """For the environment, before JAX is imported."""


@dataclass
class Answers:
    """What the members answered, by their places, and a line for each that did not."""

    values: dict[int, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


@contextmanager
def members(
    contract: SliceContract, actor: type[HostActor], *arguments: Any
) -> Iterator[list[Member]]:
    """Holds all slices of the contract, with an actor on each host, while its block runs.

    The slices should be whole and idle: workloads.slices.wait_for_slices. Raises UserError if they
    cannot be held, and for hosts that do not start or whose numbers are not 0 to the last.
    """
    with only_whole(contract):
        group = _reserved(contract)
    actors: list[Any] = []
    try:
        pgs = group.slice_placement_groups
        _wait_until_placed(contract, pgs)
        actors = [
            start(actor, pg, bundle, contract.chips_per_host, *arguments)
            for pg in pgs
            for bundle in range(contract.hosts)
        ]
        yield _in_order(contract, actors, pgs)
    finally:
        for one in actors:
            ray.kill(one)
        group.shutdown()


def rendezvous(group: Sequence[Member]) -> list[Rendezvous]:
    """For each member, in their order; the first is JAX's coordinator."""
    first = group[0]
    port = _asked(group[:1], "free_port", START_TIMEOUT_S, "to name a port")[0]
    slices = 1 + max(member.slice_index for member in group)
    return [
        Rendezvous(
            coordinator=f"{first.host.address}:{port}",
            processes=len(group),
            process=process,
            variables=_between_slices(first.host.address, slices, member.slice_index),
        )
        for process, member in enumerate(group)
    ]


def ask(group: Sequence[Member], calls: Sequence[Any], timeout_s: float, what: str) -> Answers:
    """The results of one remote call a member. `what`, for messages, follows "did not answer".

    A member that fails ends the wait soon after: the others may wait for it in a collective.
    """
    answers = Answers()
    waiting = {call: place for place, call in enumerate(calls)}
    deadline = time.monotonic() + timeout_s
    while waiting and (left_s := deadline - time.monotonic()) > 0:
        done, _ = ray.wait(list(waiting), num_returns=1, timeout=left_s)
        for call in done:
            place = waiting.pop(call)
            try:
                answers.values[place] = ray.get(call)
            except RayError as error:
                answers.faults += (f"{group[place].host}: {line}" for line in told(error))
                deadline = min(deadline, time.monotonic() + GRACE_S)
    if waiting and not answers.faults:
        late = [group[place] for place in waiting.values()]
        limit = f"did not answer within {timeout_s:.0f} s, when asked {what}"
        hosts = [f"{member.host}" for member in _stuck(late) or late]
        answers.faults += (f"{host}: {limit}; see the logs of that host" for host in hosts)
    return answers


def _stuck(late: Sequence[Member]) -> list[Member]:
    """Of several that are late, those that the others wait for: which answer nothing at all."""
    pings = [member.actor.ping.remote() for member in late]
    _, silent = ray.wait(pings, num_returns=len(pings), timeout=PING_TIMEOUT_S)
    return [member for ping, member in zip(pings, late, strict=True) if ping in silent]


def told(error: RayError) -> tuple[str, ...]:
    if isinstance(error, RayActorError):
        return ("its process was lost, or the whole host; see the logs of that host",)
    return explain(error)


def _reserved(contract: SliceContract) -> Any:
    # One host's slice has no name of its own to Ray: without the pod type any host would do.
    shape = {"ray.io/tpu-pod-type": contract.pod_type}
    try:
        return slice_placement_group(
            topology=contract.topology,
            accelerator_version=contract.accelerator_type,
            num_slices=contract.slices,
            chips_per_vm=contract.chips_per_host,
            resources_per_bundle={"CPU": 1, "TPU": contract.chips_per_host},
            bundle_label_selector=[shape] * contract.workers,
            pg_per_slice=True,
            head_reservation_timeout_s=RESERVE_TIMEOUT_S,
        )
    except TimeoutError:
        raise _not_free(contract) from None


def _wait_until_placed(contract: SliceContract, pgs: Sequence[PlacementGroup]) -> None:
    placed = [pg.ready() for pg in pgs]
    ready, _ = ray.wait(placed, num_returns=len(placed), timeout=RESERVE_TIMEOUT_S)
    if len(ready) < len(placed):
        raise _not_free(contract)
    ray.get(ready)


def _not_free(contract: SliceContract) -> UserError:
    return UserError(
        f"slice {contract.name}: {contract.slices} of {contract.accelerator_type} "
        f"{contract.topology} could not be held within {RESERVE_TIMEOUT_S} s; end what else runs "
        "on them"
    )


def start(
    actor: type[HostActor], pg: PlacementGroup, bundle: int, chips: int, *arguments: Any
) -> Any:
    """An actor on the host of a bundle, with all of its chips."""
    place = PlacementGroupSchedulingStrategy(pg, placement_group_bundle_index=bundle)
    remote = ray.remote(concurrency_groups={_PING: 1})(actor)  # pyright: ignore[reportCallIssue] # its hint lacks this
    options = {"num_cpus": 1, "resources": {"TPU": chips}, "scheduling_strategy": place}
    return remote.options(**options).remote(*arguments)


def _in_order(
    contract: SliceContract, actors: Sequence[Any], pgs: Sequence[PlacementGroup]
) -> list[Member]:
    """By slice, and in it by number: so JAX numbers its processes, and libtpu the slices."""
    starting = [
        Member(_expected(pg, bundle), index, actors[index * contract.hosts + bundle])
        for index, pg in enumerate(pgs)
        for bundle in range(contract.hosts)
    ]
    hosts: list[Host] = _asked(starting, "host", START_TIMEOUT_S, "who it is")
    size = contract.hosts
    slices = [
        list(zip(hosts[start : start + size], actors[start : start + size], strict=True))
        for start in range(0, len(hosts), size)
    ]
    if faults := [
        fault for one in slices for fault in number_faults(contract, [host for host, _ in one])
    ]:
        raise UserError(*faults)
    slices.sort(key=lambda one: one[0][0].slice_name)
    return [
        Member(host, index, actor)
        for index, one in enumerate(slices)
        for host, actor in sorted(one, key=lambda pair: pair[0].worker_id or 0)
    ]


def _asked(group: Sequence[Member], method: str, timeout_s: float, what: str) -> list[Any]:
    """Raises UserError unless every member answers."""
    calls = [getattr(member.actor, method).remote() for member in group]
    answers = ask(group, calls, timeout_s, what)
    if answers.faults:
        raise UserError(*answers.faults)
    return [answers.values[place] for place in range(len(group))]


def _expected(pg: PlacementGroup, bundle: int) -> Host:
    """The host of a bundle as Ray's labels tell it, for when it does not answer itself."""
    node_id = ray.util.placement_group_table(pg)["bundles_to_node_id"][bundle]
    return next(of_node(node) for node in ray.nodes() if node["NodeID"] == node_id)


def _between_slices(address: str, slices: int, index: int) -> dict[str, str]:
    """Always over what is there: a number of slices that have gone would be waited for."""
    if slices == 1:
        return {}
    return get_tpu_coordinator_env_vars(
        coordinator_address=address, num_slices=slices, slice_id=index
    )
