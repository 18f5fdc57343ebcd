"""Nodes of declared slices, against what GKE documents of them."""

from pathlib import Path

import pytest
import yaml

from infra.config import load, stackfile
from infra.ray import pods
from infra.tpu.slice import SliceSpec, TpuSlice
from tools.cluster.nodes import cpu_nodes, slice_nodes, stack_nodes

STACKS = Path(__file__).parents[2] / "stacks"


def tpu(**spec):
    return TpuSlice.resolve(SliceSpec.model_validate({"name": "train", **spec}))


def stack(name):
    return load(stackfile.read(STACKS / f"Pulumi.{name}.yaml"), stack=name, encrypted=True)


def taints(node):
    return {taint["key"]: taint["value"] for taint in node["spec"]["taints"]}


def test_a_host_of_a_v6e_4x4_looks_as_gke_makes_it():
    nodes = slice_nodes(tpu(machine_type="ct6e-standard-4t", topology="4x4"), zone="us-east5-b")
    assert [node["metadata"]["name"] for node in nodes] == [
        "gke-train-0-0",
        "gke-train-0-1",
        "gke-train-0-2",
        "gke-train-0-3",
    ]
    assert nodes[3]["metadata"]["labels"] == {
        "kubernetes.io/hostname": "gke-train-0-3",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": "us-east5-b",
        "topology.kubernetes.io/region": "us-east5",
        "cloud.google.com/gke-nodepool": "train-0",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-accelerator-count": "4",
        "cloud.google.com/gke-provisioning": "standard",
        "node.kubernetes.io/instance-type": "ct6e-standard-4t",
    }
    assert taints(nodes[3]) == {"google.com/tpu": "present"}
    assert nodes[3]["status"]["allocatable"]["google.com/tpu"] == "4"
    assert nodes[3]["status"]["capacity"]["cpu"] == "180"
    assert nodes[3]["status"]["capacity"]["memory"] == "720Gi"


@pytest.mark.parametrize(
    ("machine_type", "topology", "count", "pools"),
    [
        ("ct6e-standard-4t", "4x4", 2, {"train-0": 4, "train-1": 4}),
        ("ct6e-standard-8t", "2x4", 3, {"train-0": 3}),  # each node is a slice of its own
        ("ct6e-standard-4t", "2x4", 1, {"train-0": 2}),
        ("ct5p-hightpu-4t", "4x4x4", 1, {"train-0": 16}),
        ("tpu7x-standard-4t", "2x2x2", 1, {"train-0": 2}),
    ],
)
def test_a_slice_of_several_hosts_is_a_node_pool(machine_type, topology, count, pools):
    nodes = slice_nodes(
        tpu(machine_type=machine_type, topology=topology, count=count), zone="us-east5-a"
    )
    names = [node["metadata"]["labels"]["cloud.google.com/gke-nodepool"] for node in nodes]
    assert {name: names.count(name) for name in names} == pools


@pytest.mark.parametrize(
    ("rung", "key", "provisioning"),
    [
        ({"spot": {}}, "cloud.google.com/gke-spot", "spot"),
        ({"flex_start": {}}, "cloud.google.com/gke-flex-start", "flex-start"),
        ({"queued": {}}, "cloud.google.com/gke-queued", "standard"),
    ],
)
def test_the_first_rung_of_the_ladder_marks_the_nodes(rung, key, provisioning):
    declared = tpu(
        machine_type="ct6e-standard-4t", topology="2x2", capacity=[rung, {"on_demand": {}}]
    )
    (node,) = slice_nodes(declared, zone="us-east5-b", compute_class="ladder")
    labels = node["metadata"]["labels"]
    assert labels[key] == "true"
    assert labels["cloud.google.com/gke-provisioning"] == provisioning
    assert labels["cloud.google.com/compute-class"] == "ladder"
    assert taints(node) == {
        "google.com/tpu": "present",
        key: "true",
        "cloud.google.com/compute-class": "ladder",
    }


@pytest.mark.parametrize("name", ["existing", "dev", "staging", "prod"])
def test_each_host_of_a_stack_has_a_node_that_takes_its_pod(name):
    config = stack(name)
    nodes = stack_nodes(config)
    for declared in config.slices:
        wanted = pods.node_selector(config, declared).items()
        fitting = [node for node in nodes if wanted <= node["metadata"]["labels"].items()]
        assert len(fitting) == declared.workers
        tolerated = {one["key"] for one in pods.tolerations(declared)}
        for node in fitting:  # GKE itself adds the toleration of a class
            assert taints(node).keys() - tolerated <= {"cloud.google.com/compute-class"}
            assert node["status"]["allocatable"]["google.com/tpu"] == str(declared.chips_per_host)


def test_an_upgrade_to_a_new_cluster_finds_as_many_nodes_again(tmp_path):
    declared = yaml.safe_load((STACKS / "Pulumi.existing.yaml").read_text())
    declared["config"]["raytpu:workloads"][-1]["upgrade"] = "new_cluster"
    file = tmp_path / "Pulumi.spare.yaml"
    file.write_text(yaml.safe_dump(declared))
    upgraded = load(stackfile.read(file), stack="existing", encrypted=True)
    before, after = (
        [node["metadata"]["name"] for node in stack_nodes(config)]
        for config in (stack("existing"), upgraded)
    )
    assert {*after} - {*before} == {"gke-chat-0-2-0"}
    assert len(after) == len({*after}) == len(before) + 1


def test_there_is_room_for_many_heads_without_chips():
    nodes = cpu_nodes("us-east5-b")
    assert [node["metadata"]["name"] for node in nodes] == ["gke-cpu-0", "gke-cpu-1"]
    assert all(node["spec"]["taints"] == [] for node in nodes)
    assert {node["status"]["allocatable"]["cpu"] for node in nodes} == {"63"}


def test_a_local_stack_has_no_nodes():
    with pytest.raises(TypeError, match="has no nodes"):
        stack_nodes(stack("local"))
