"""A RayService of engine jax whose replicas run on several hosts, or on parts of a slice."""

import yaml

from tests.infra.ray.stacks import cluster_of, gke, made

CHAT = {
    "name": "chat",
    "kind": "serve",
    "slice": "chat",
    "model": {"path": "gs://acme-ml-models/qwen3"},
    "mesh": {"data": 2, "tensor": 4},
}
WHOLE = {"name": "chat", "machine_type": "ct6e-standard-4t", "topology": "2x4", "count": 2}
SQUARE = {**WHOLE, "topology": "4x4", "count": 1}


def service(slice_, **more):
    manifest = made(gke([slice_], [{**CHAT, **more}]))["RayService/chat"].manifest
    (group,) = cluster_of(manifest)["workerGroupSpecs"]
    (application,) = yaml.safe_load(manifest["spec"]["serveConfigV2"])["applications"]
    return group, application["args"]


def test_each_replica_is_told_a_slice_of_two_hosts_that_the_operator_makes():
    group, args = service(WHOLE)
    assert (group["replicas"], group["numOfHosts"]) == (2, 2)
    (container,) = group["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["google.com/tpu"] == "4"
    told = args["slice"]
    assert (told["hosts"], told["chips_per_host"], told["pod_type"]) == (2, 4, "v6e-8")
    assert args["replicas"] == 2
    assert "parent_topology" not in args


def test_a_host_counts_as_ready_within_a_second_of_serves_proxy_for_the_operator_does_not_wait():
    """The operator's own probe, which it adds where there is none, looks every five seconds."""
    group, _ = service(WHOLE)
    (container,) = group["template"]["spec"]["containers"]
    probe = container["readinessProbe"]
    assert probe["httpGet"] == {"path": "/-/healthz", "port": 8000}
    assert probe["periodSeconds"] == 1


def test_parts_are_told_to_the_server_alone_and_the_operator_makes_whole_slices():
    group, args = service(SQUARE, replica_topology="2x4")
    assert (group["replicas"], group["numOfHosts"]) == (1, 4)
    selector = group["template"]["spec"]["nodeSelector"]
    assert selector["cloud.google.com/gke-tpu-topology"] == "4x4"
    told = args["slice"]
    assert (told["topology"], told["hosts"], told["slices"]) == ("2x4", 2, 2)
    assert (args["parent_topology"], args["replicas"]) == ("4x4", 2)
