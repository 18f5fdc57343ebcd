"""Every argument exists in the installed SDK, and in the type that the SDK has it in."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.config import StackConfig
from infra.gke.plan import plan
from infra.tpu.catalog import GENERATIONS, MACHINES
from infra.tpu.topology import topologies
from tests.infra.gke import sdk, stacks

SOUND: dict[str, Any] = {"cluster": "c", "node_config": {"spot": True, "labels": {"a": "b"}}}


def unknown_to_the_sdk(config: StackConfig) -> list[str]:
    return [
        fault
        for resource in plan(config).resources()
        for fault in sdk.faults(resource.type, resource.args)
    ]


@pytest.mark.parametrize("name", stacks.ON_GOOGLE)
def test_the_sdk_knows_all_arguments_of_the_stack(name: str):
    assert unknown_to_the_sdk(stacks.declared(name)) == []


@pytest.mark.parametrize("name", stacks.ON_GOOGLE)
def test_arguments_are_plain_values(name: str):
    for resource in plan(stacks.declared(name)).resources():
        assert json.loads(json.dumps(resource.args)) == resource.args


ways = st.sampled_from(
    [
        {"on_demand": {}},
        {"spot": {}},
        {"flex_start": {"max_run_duration": "12h"}},
        {"flex_start": {"queued": True}},
        {"queued": {}},
        {"reservation": {"name": "r"}},
        {"reservation": {"name": "r", "block": "b", "sub_block": "s"}},
    ]
)


@st.composite
def slices(draw: st.DrawFn) -> dict[str, Any]:
    machine = draw(st.sampled_from([*MACHINES.values()]))
    way = draw(ways)
    if not GENERATIONS[machine.generation].flex_start and "flex_start" in way:
        way = {"spot": {}}
    return {
        "name": "train",
        "machine_type": machine.name,
        "topology": draw(st.sampled_from(topologies(machine))),
        "count": draw(st.integers(1, 3)),
        "capacity": [way],
        "keep_nodes": draw(st.booleans()) and "reservation" in way,
        "provision": "node_pools",
    }


@given(slices())
@settings(max_examples=60, deadline=None)
def test_the_sdk_knows_all_arguments_of_any_slice(declared: dict[str, Any]):
    zone = GENERATIONS[MACHINES[declared["machine_type"]].generation].zones[0]
    where = {"location": zone.rsplit("-", 1)[0], "zones": [zone]}
    assert unknown_to_the_sdk(stacks.stack(declared, cluster=where)) == []


def test_a_sound_pool_has_no_fault():
    assert sdk.faults("container.NodePool", SOUND) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"nod_count": 1}, "container.NodePool: knows no nod_count"),
        ({"node_config": {"spto": True}}, "container.NodePool.node_config: knows no spto"),
        ({"placement_policy": {"tpu_topology": "4x4"}}, ".placement_policy: lacks type"),
        ({"node_count": "1"}, ".node_count: '1' is no int"),
        ({"node_count": True}, ".node_count: True is no int"),
        ({"node_config": {"labels": {"a": 1}}}, ".node_config.labels[a]: 1 is no str"),
        ({"node_locations": "us-east5-b"}, ".node_locations: 'us-east5-b' is no"),
        ({"node_locations": [1]}, ".node_locations[0]: 1 is no str"),
        ({"autoscaling": []}, ".autoscaling: is no list"),
        ({"node_locations": {}}, ".node_locations: is no block"),
    ],
)
def test_the_check_refuses(change: dict[str, Any], fault: str):
    (found,) = sdk.faults("container.NodePool", SOUND | change)
    assert fault in found


def test_the_check_refuses_a_pool_of_no_cluster():
    (found,) = sdk.faults("container.NodePool", {"name": "p"})
    assert found == "container.NodePool: lacks cluster"
