"""A program over all hosts of a slice: what its driver waits for, and what its hosts must see."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from workloads import versions
from workloads.contract import SliceContract, told_devices
from workloads.errors import UserError
from workloads.hosts import nodes_of, number_faults, of_nodes
from workloads.log import say

SLICE_TIMEOUT_S = 900
"""A node pool scales up in minutes; a slice that is not there after this will not come."""
TELL_EVERY_S = 30
IDLE_AFTER_S = 5
"""A host whose work has ended is idle to Ray once it has reported so, each a moment later."""
KEPT_TIMEOUT_S = 10
"""For Ray to place what keeps it off a slice: milliseconds, unless that host has just gone."""
SETTLE_S = 60
"""A host that was replaced is there twice until Ray has noticed that the first one is gone."""
GROUP_LABEL = "raytpu/slice"
"""Of all hosts of a worker group, which has the name of its slice."""


def wait_for_slices(contract: SliceContract, timeout_s: float) -> None:
    """Until the slices are whole and idle. Raises UserError after `timeout_s`.

    JaxTrainer would wait for them for ever, and in silence.
    """
    what = f"{contract.slices} slice(s) {contract.accelerator_type} {contract.topology}"
    deadline = time.monotonic() + timeout_s
    tell_at, sound_at = 0.0, time.monotonic()
    while True:
        ready, misnumbered, now = idle_slices(contract), _misnumbered(contract), time.monotonic()
        if not misnumbered:
            sound_at = now
            if ready >= contract.slices:
                return
        elif now - sound_at > SETTLE_S:
            raise UserError(*misnumbered)
        if now > deadline:
            raise UserError(
                f"slice {contract.name}: {ready} of {what} whole and idle after {timeout_s:.0f} s; "
                "end what runs on it, or see why its hosts do not come up"
            )
        if now > tell_at:
            say(f"waiting for {what}: {ready} ready (limit {timeout_s:.0f} s)")
            tell_at = now + TELL_EVERY_S
        time.sleep(1)


def _misnumbered(contract: SliceContract) -> list[str]:
    """What is wrong with the numbers of slices that have all of their hosts.

    JAX would wait for ever for the host that is not there under its number.
    """
    import ray

    slices = of_nodes(contract, ray.nodes()).values()
    full = [hosts for hosts in slices if len(hosts) == contract.hosts]
    return [fault for hosts in full for fault in number_faults(contract, hosts)]


def first_whole(contracts: Sequence[SliceContract], timeout_s: float) -> SliceContract:
    """The first of these that is whole and idle; each is waited for in turn, for so long.

    Raises UserError if none of them is. Where Ray scales the cluster, each is asked for, and those
    before it no more.
    """
    faults: list[str] = []
    for contract in contracts:
        if len(contracts) > 1:
            _ask_for(contract)
        try:
            wait_for_slices(contract, timeout_s)
        except UserError as error:
            faults += error.faults
            if contract is not contracts[-1]:
                say(error.faults[0])
        else:
            return contract
    raise UserError(*faults)


def most_whole(contract: SliceContract, least: int, timeout_s: float) -> SliceContract:
    """As many of the slices as are whole and idle, once `least` of them are.

    Raises UserError after `timeout_s`. The hosts of an attempt that has just ended become idle one
    after the other: so it waits until no more of them do.
    """
    fewest = replace(contract, slices=least)
    wait_for_slices(fewest, timeout_s)
    found = least
    while found < contract.slices:
        time.sleep(IDLE_AFTER_S)
        now = min(idle_slices(contract), contract.slices)
        if now <= found:
            break
        found = now
    return replace(contract, slices=found)


def _ask_for(contract: SliceContract) -> None:
    """Of Ray's autoscaler, which makes nodes of a worker group for each bundle.

    It takes a slice for so many single nodes, and rounds down to whole ones: so each host is asked
    for, not only the one by which Ray reserves a slice. What is asked for is also kept while it is
    idle, between two attempts. Where there is no autoscaler, nothing comes of it.
    """
    from ray.autoscaler.sdk import request_resources

    hosts = [{"TPU": contract.chips_per_host}] * contract.workers
    request_resources(
        bundles=hosts, bundle_label_selectors=[{GROUP_LABEL: contract.name}] * len(hosts)
    )


def idle_slices(contract: SliceContract) -> int:
    """Slices that are whole and idle, and of which no host is about to go.

    Ray's own get_num_ready_tpu_slices (2.60) counts busy ones too: a resource of which nothing is
    left is not in Ray's report, and it takes what is not there for free.
    """
    from ray._private import state

    free = state.available_resources_per_node()

    def idle(node: Mapping[str, Any]) -> bool:
        return free.get(node["NodeID"], {}).get("TPU", 0) == contract.chips_per_host

    return sum(sound and all(map(idle, nodes)) for sound, nodes in _judged(contract).values())


@contextmanager
def only_whole(contract: SliceContract) -> Iterator[None]:
    """Keeps Ray off the slices that are not whole, while its block has Ray reserve others.

    Ray 2.60 reserves a slice by its first host alone (reserve_tpu_slice). Of a slice that has lost
    another host it would wait for that host until its limit, beside a slice that is whole.
    """
    from ray.util.placement_group import placement_group, remove_placement_group

    first = {f"TPU-{contract.pod_type}-head": 1.0}
    kept = [
        placement_group([first], bundle_label_selector=[{"ray.io/node-id": node["NodeID"]}])
        for sound, nodes in _judged(contract).values()
        for node in nodes
        if contract.multi_host and not sound and first.keys() <= node["Resources"].keys()
    ]
    try:
        for pg in kept:
            pg.wait(KEPT_TIMEOUT_S)
        yield
    finally:
        for pg in kept:
            remove_placement_group(pg)


def _judged(contract: SliceContract) -> dict[str, tuple[bool, list[Mapping[str, Any]]]]:
    """Of each slice whether it is whole and stays so, and its living nodes."""
    import ray
    from ray._private import state

    leaving = state.state.get_draining_nodes()
    return {
        name: (
            len(nodes) == contract.hosts and not any(n["NodeID"] in leaving for n in nodes),
            nodes,
        )
        for name, nodes in nodes_of(contract, ray.nodes()).items()
    }


def scaling(contract: SliceContract) -> Any:
    """What Ray Train is asked for: a worker on each host, with all its chips.

    Ray Train reserves a multi-host slice by its name. One host it would take anywhere, also out of
    a larger slice, so that worker asks for what the first host of its shape alone has.
    """
    from ray.train import ScalingConfig

    head = {} if contract.multi_host else {f"TPU-{contract.pod_type}-head": 1.0}
    return ScalingConfig(
        use_tpu=True,
        num_workers=contract.workers,
        topology=contract.topology,
        accelerator_type=contract.accelerator_type,
        resources_per_worker={"TPU": float(contract.chips_per_host), **head},
    )


def check_devices(contract: SliceContract) -> None:
    """Raises UserError where versions are not the head's, or devices not what was declared."""
    versions.check_host()
    if faults := stale_variables(contract):
        raise UserError(*faults)
    import jax

    seen = {
        **_slices_seen(jax.devices(), contract),
        "hosts": (jax.process_count(), contract.workers),
        "devices": (jax.device_count(), contract.devices),
        "devices on this host": (jax.local_device_count(), contract.devices_per_host),
    }
    devices = told_devices(contract.devices_per_host, contract.devices_per_chip)
    if faults := [
        f"JAX sees {found} {what}, but slice {contract.name} has {declared}; "
        f"check the machine type and topology that were declared, with {devices} a host"
        for what, (found, declared) in seen.items()
        if found != declared
    ]:
        raise UserError(*faults)


def stale_variables(contract: SliceContract) -> list[str]:
    """What would have libtpu wait for slices that are not coming.

    Ray Train sets these variables for several slices, over whatever is there, and leaves them alone
    for one. So what differs was set by hand, or for a cluster that has changed since.
    """
    found = os.environ.get("MEGASCALE_NUM_SLICES")
    if found in (None, str(contract.slices)):
        return []
    declared = f"slice {contract.name} has count {contract.slices}"
    fix = "take it out of the pod's variables, since Ray Train sets it"
    return [f"MEGASCALE_NUM_SLICES: is {found} in a worker's environment, but {declared}; {fix}"]


def _slices_seen(devices: Sequence[Any], contract: SliceContract) -> dict[str, tuple[int, int]]:
    """Only a TPU knows its slice: other devices of several processes all say 0."""
    known = {device.slice_index for device in devices if device.platform == "tpu"}
    return {"slices": (len(known), contract.slices)} if known else {}
