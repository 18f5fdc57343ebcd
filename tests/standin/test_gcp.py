"""The stand-in of Google needs what a resource names, and gives back more than it was told."""

import pytest

from tests.standin import gcp
from tests.standin.api import Made, RefusedError
from tests.standin.gcp import GoogleCloud

PROJECT = {"project": "acme-ml", "location": "us-east5"}
NETWORK = {"name": "net", "project": "acme-ml"}
SUBNETWORK = {
    "name": "sub",
    "project": "acme-ml",
    "region": "us-east5",
    "network": "net",
    "ipCidrRange": "10.0.0.0/28",
    "secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": "10.1.0.0/22"}],
}
CLUSTER = {
    "name": "raytpu",
    **PROJECT,
    "network": "net",
    "subnetwork": "sub",
    "initialNodeCount": 1,
    "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods"},
    "workloadIdentityConfig": {"workloadPool": "acme-ml.svc.id.goog"},
}
POOL = {
    "name": "cpu",
    **PROJECT,
    "cluster": "raytpu",
    "nodeConfig": {"machineType": "n2-standard-8"},
    "nodeCount": 2,
}
MEMBER = {
    "bucket": "data",
    "role": "roles/storage.objectViewer",
    "member": "principal://iam.googleapis.com/projects/1/locations/global/"
    "workloadIdentityPools/acme-ml.svc.id.goog/subject/ns/team/sa/chat",
}


@pytest.fixture
def cloud(monkeypatch):
    monkeypatch.setattr(gcp, "POOL_S", 0)
    return GoogleCloud()


def make(cloud, *resources):
    """The last one, as it is then."""
    made = [Made("dev", type_, args) for type_, args in resources]
    for one in made:
        cloud.create(one)
        cloud.made[cloud.identify(one)] = one
    return made[-1]


def enable(api):
    return gcp.SERVICE, {"project": "acme-ml", "service": f"{api}.googleapis.com"}


def whole(cloud, **cluster):
    return make(
        cloud,
        enable("compute"),
        enable("container"),
        (gcp.NETWORK, NETWORK),
        (gcp.SUBNETWORK, SUBNETWORK),
        (gcp.CLUSTER, {**CLUSTER, **cluster}),
    )


def test_an_api_that_is_off_is_not_there(cloud):
    with pytest.raises(RefusedError, match="has not been used in project"):
        make(cloud, (gcp.NETWORK, NETWORK))


def test_what_a_resource_names_must_be_there(cloud):
    with pytest.raises(RefusedError, match="Network net was not found"):
        make(cloud, enable("compute"), (gcp.SUBNETWORK, SUBNETWORK))


def test_a_cluster_is_known_by_its_dns_name(cloud):
    cluster = whole(cloud)
    endpoints = cluster.state()["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]
    assert cloud.cluster_at(endpoints["endpoint"]) is cluster
    assert cloud.cluster_at("elsewhere.example") is None


def test_pods_need_addresses(cloud):
    """110 pods take a /24 of the /22: four nodes, and no fifth."""
    whole(cloud)
    make(cloud, (gcp.NODE_POOL, {**POOL, "nodeCount": 4}))
    with pytest.raises(RefusedError, match="pods need 1280 addresses of 1024"):
        make(cloud, (gcp.NODE_POOL, {**POOL, "name": "more", "nodeCount": 1}))


def test_nodes_need_addresses(cloud):
    """Google keeps four of the sixteen."""
    whole(cloud)
    few = {**POOL, "maxPodsPerNode": 8}
    make(cloud, (gcp.NODE_POOL, {**few, "nodeCount": 12}))
    with pytest.raises(RefusedError, match="13 nodes for 12 addresses"):
        make(cloud, (gcp.NODE_POOL, {**few, "name": "more", "nodeCount": 1}))


def test_a_workload_has_no_identity_before_the_cluster(cloud):
    make(cloud, (gcp.BUCKET, {"name": "data", **PROJECT}))
    with pytest.raises(RefusedError, match="Identity Pool does not exist"):
        make(cloud, ("gcp:storage/bucketIAMMember:BucketIAMMember", MEMBER))
    whole(cloud)
    make(cloud, ("gcp:storage/bucketIAMMember:BucketIAMMember", MEMBER))


def test_a_cluster_is_protected_unless_it_is_said_not_to_be(cloud):
    with pytest.raises(RefusedError, match="deletion_protection is set to true"):
        cloud.delete(whole(cloud))
    free = GoogleCloud()
    free.delete(whole(free, deletionProtection=False))


def test_a_network_in_use_stays(cloud):
    whole(cloud)
    [network] = cloud.of_type(gcp.NETWORK)
    with pytest.raises(RefusedError, match="net is already being used"):
        cloud.delete(network)


def test_a_pool_comes_back_with_more_than_was_said(cloud):
    whole(cloud)
    pool = make(cloud, (gcp.NODE_POOL, POOL))
    assert "shieldedInstanceConfig" not in pool.args["nodeConfig"]
    assert "shieldedInstanceConfig" in pool.state()["nodeConfig"]


def test_hosts_of_a_slice_cannot_be_resized_or_given_another_machine(cloud):
    whole(cloud)
    args = {
        **POOL,
        "nodeCount": 2,
        "nodeConfig": {"machineType": "ct6e-standard-4t"},
        "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x4"},
    }
    pool = make(cloud, (gcp.NODE_POOL, args))
    with pytest.raises(RefusedError, match="manual resize is not supported"):
        cloud.update(pool, {**args, "nodeCount": 0})
    other = {"machineType": "ct6e-standard-8t"}
    with pytest.raises(RefusedError, match=r"nodeConfig\.machineType .* cannot be changed"):
        cloud.update(pool, {**args, "nodeConfig": other})
