"""No object of any stack is one that the Ray operator or the TPU webhook would refuse."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.tpu.catalog import MACHINES
from infra.tpu.topology import topologies
from tests.infra.ray import kuberay
from tests.infra.ray.stacks import FILES, cluster_of, gke, made, shipped

LEGAL = [(machine.name, shape) for machine in MACHINES.values() for shape in topologies(machine)]
ZONES = {"v4": "us-central2-b", "v5e": "us-west4-a", "v5p": "us-east5-a", "v6e": "us-east5-b"}


def ray_objects(config):
    return [
        one.manifest for one in made(config).values() if one.manifest["apiVersion"] == "ray.io/v1"
    ]


@pytest.mark.parametrize("stack", FILES)
def test_the_operator_takes_every_object(stack):
    for manifest in ray_objects(shipped(stack)):
        assert kuberay.faults(manifest) == []


@settings(deadline=None)  # a busy machine takes its time
@given(
    shape=st.sampled_from(LEGAL),
    count=st.integers(1, 50),
    provision=st.sampled_from(["node_pools", "compute_class"]),
    name=st.from_regex(r"[a-z]([-a-z0-9]{0,33}[a-z0-9])?", fullmatch=True),
)
def test_the_webhook_counts_the_hosts_of_every_shape_as_we_do(shape, count, provision, name):
    machine, topology = shape
    zone = ZONES.get(MACHINES[machine].generation, "us-central1-c")
    tpu = {
        "name": "slice",
        "machine_type": machine,
        "topology": topology,
        "count": count,
        "provision": provision,
    }
    where = {"location": zone.rpartition("-")[0], "zones": [zone], "version": None}
    config = gke([tpu], [{"name": name, "kind": "cluster", "slice": "slice"}], cluster=where)
    (manifest,) = ray_objects(config)
    assert kuberay.faults(manifest) == []
    (group,) = cluster_of(manifest)["workerGroupSpecs"]
    chips = int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["google.com/tpu"])
    product = 1
    for size in topology.split("x"):
        product *= int(size)
    assert group["numOfHosts"] * chips == product


def _at(manifest: Any, path: str) -> Any:
    for step in path.split("."):
        manifest = manifest[int(step) if isinstance(manifest, list) else step]
    return manifest


GROUP = "spec.rayClusterSpec.workerGroupSpecs.0"
# Where a job's manifest is spoilt, with what, and the refusal.
SPOILT = [
    ("metadata", {"name": "p" * 36}, "has more than 35 characters"),
    ("metadata", {"name": "1st"}, "1st is no DNS-1035 label"),
    (GROUP, {"numOfHosts": 2}, "numOfHosts is 2 instead of 4"),
    (GROUP, {"maxReplicas": 0}, "replicas are outside of their limits"),
    (GROUP, {"rayStartParams": {"num-cpus": 0}}, "a rayStartParam is no text"),
    (GROUP, {"labels": {"raytpu/slice": "a b"}}, "raytpu/slice=a b is no label"),
    (f"{GROUP}.template.spec", {"nodeSelector": {}}, "a TPU pod selects no topology"),
    ("spec", {"shutdownAfterJobFinishes": False}, "the job keeps its slices for ever"),
    ("spec", {"activeDeadlineSeconds": 0}, "a limit is negative"),
]


@pytest.mark.parametrize(("path", "change", "refusal"), SPOILT, ids=[s[2] for s in SPOILT])
def test_the_checklist_finds_what_is_spoilt(path, change, refusal):
    manifest = copy.deepcopy(made(shipped("staging"))["RayJob/pretrain"].manifest)
    _at(manifest, path).update(change)
    assert refusal in " ".join(kuberay.faults(manifest))
