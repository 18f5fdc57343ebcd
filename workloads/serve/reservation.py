"""The chips of a replica over several hosts: a slice, or a part of one, whole or not at all."""

import itertools
import math
import random
import time
from collections.abc import Sequence
from typing import cast

from ray.util.placement_group import PlacementGroup
from ray.util.tpu import (
    SlicePlacementGroup,
    SubslicePlacementGroup,
    get_current_pod_name,
    get_tpu_nodes_for_slice,
    slice_placement_group,
    subslice_placement_group,
)

from workloads.contract import SliceContract
from workloads.errors import UserError, explain
from workloads.hosts import Host
from workloads.log import say
from workloads.slices import SLICE_TIMEOUT_S

Held = SlicePlacementGroup | SubslicePlacementGroup

PART_TIMEOUT_S = 5
"""For a part that is free, which takes milliseconds."""
LAYOUT_TIMEOUT_S = 20
"""For Ray's look into the layout. Later than another, it waits as long for a slice all free."""
PROCESS_PORT = 8476
"""Of libtpu, for the processes of a part to find each other: Cloud TPU's own choice."""


def reserve(tpu: SliceContract, timeout_s: float = SLICE_TIMEOUT_S) -> SlicePlacementGroup:
    """The slice whose first host this process runs on.

    Raises UserError if chips are missing or taken after `timeout_s`.
    """
    name = str(get_current_pod_name())
    # By its name, Ray takes no other slice's first host: this process holds that of its own.
    bundles = [
        {"ray.io/tpu-slice-name": name, "ray.io/tpu-worker-id": str(rank)}
        for rank in range(tpu.hosts)
    ]
    held = slice_placement_group(
        tpu.topology,
        tpu.accelerator_type,
        resources_per_bundle={"CPU": 1, "TPU": tpu.chips_per_host},
        chips_per_vm=tpu.chips_per_host,  # which Ray would guess, and wrongly of a v6e 2x4
        strategy="STRICT_SPREAD",
        bundle_label_selector=bundles,
    )
    what = f"slice {tpu.name}: {tpu.hosts} hosts of {tpu.accelerator_type} {tpu.topology}, {name}"
    say(f"waiting for {what} (limit {timeout_s} s)")
    if placed(held).wait(timeout_s):
        return held
    held.shutdown()
    there = len(get_tpu_nodes_for_slice(name))
    raise UserError(
        f"{what}: {there} are there, and not all chips are free after {timeout_s} s; end what runs "
        "on them, or see why its hosts do not come up"
    )


def reserve_part(
    tpu: SliceContract, parent_topology: str, timeout_s: float = SLICE_TIMEOUT_S
) -> SubslicePlacementGroup:
    """A free part of the slice of `parent_topology`, as `tpu` describes it.

    One after the other is asked for, in any order: left to choose, Ray 2.60 takes a host of which
    all chips are in use for a free one, and returns the first part for ever. It also looks into the
    layout of a slice by reserving all of it, so what it refuses may be free a moment later. Raises
    UserError if it gives none within `timeout_s`.
    """
    what = f"slice {tpu.name}: a part {tpu.topology} of {tpu.accelerator_type} {parent_topology}"
    say(f"waiting for {what} (limit {timeout_s} s)")
    deadline, why = time.monotonic() + timeout_s, "all are in use"
    indices = itertools.cycle(random.sample(range(tpu.slices), tpu.slices))
    while time.monotonic() < deadline:
        try:
            held = _part(tpu, next(indices))
        except (RuntimeError, TimeoutError, ValueError) as error:
            why = " ".join(explain(error))
            time.sleep(1)
            continue
        if held.parent_topology == parent_topology and placed(held).wait(PART_TIMEOUT_S):
            return held
        held.shutdown()
    raise UserError(f"{what} could not be reserved within {timeout_s} s ({why})")


def _part(tpu: SliceContract, index: int) -> SubslicePlacementGroup:
    return subslice_placement_group(
        tpu.topology,
        tpu.accelerator_type,
        chips_per_vm=tpu.chips_per_host,
        head_reservation_timeout_s=LAYOUT_TIMEOUT_S,
        subslice_index=index,
    )


def placed(held: Held) -> PlacementGroup:
    """None only of what was given back."""
    return cast("PlacementGroup", held.placement_group)


def variables(held: Held, hosts: Sequence[Host]) -> list[dict[str, str]]:
    """What each process must know to take a part for a slice: its own hosts, and no others.

    Ray leaves that to the program (ray-project/ray 64578). Processes are in the order of hosts.
    """
    if isinstance(held, SlicePlacementGroup):
        return [{} for _ in hosts]
    edge = math.isqrt(held.chips_per_host)  # Ray's parts are of hosts that are squares of chips
    # Ray 2.60 names a part by its rows: a 2x4 is one row of two hosts along libtpu's first axis.
    rows, columns = (int(size) // edge for size in held.subslice_topology.split("x"))
    addresses = [host.address for host in hosts]
    return [
        {
            "TPU_PROCESS_BOUNDS": f"{columns},{rows},1",
            "TPU_CHIPS_PER_PROCESS_BOUNDS": f"{edge},{edge},1",
            "TPU_PROCESS_ADDRESSES": ",".join(f"{one}:{PROCESS_PORT}" for one in addresses),
            "TPU_PROCESS_PORT": str(PROCESS_PORT),
            "CLOUD_TPU_TASK_ID": str(rank),
            "TPU_WORKER_ID": str(rank),
            "TPU_WORKER_HOSTNAMES": ",".join(addresses),
        }
        for rank in range(len(hosts))
    ]
