"""The components under Pulumi's mocks: names, parents, order and secrets."""

import functools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.gke.plan import plan
from tests.infra.gke.registered import ENDPOINT, PROJECT_NUMBER, Registered, is_secret, register
from tests.infra.gke.stacks import ON_GOOGLE, declared, stack
from tests.infra.gke.test_identity import CHAT, HUB, TOKEN, WITH_TOKEN

NODE_POOL = "gcp:container/nodePool:NodePool"


@functools.cache
def made_of(name: str) -> list[Registered]:
    """By one of the project's own stacks."""
    return register(declared(name))


def of_type(made: list[Registered], type_: str) -> list[Registered]:
    return [one for one in made if one.type == type_]


def on_kubernetes(made: list[Registered]) -> list[Registered]:
    return [one for one in made if one.type.startswith("kubernetes:")]


def canonical(value: Any) -> Any:
    """Keys as the SDK and the engine both know them, numbers as JSON has them."""
    match value:
        case dict():
            return {key.replace("_", "").lower(): canonical(one) for key, one in value.items()}
        case list():
            return [canonical(one) for one in value]
        case str():
            return value.replace("{project_number}", PROJECT_NUMBER)
        case bool() | None:
            return value
        case _:
            return float(value)


def counted(resources: list[tuple[str, Any]]) -> Counter[str]:
    return Counter(json.dumps([name, canonical(args)], sort_keys=True) for name, args in resources)


@pytest.mark.parametrize("name", ON_GOOGLE)
def test_what_is_rendered_is_what_is_registered(name: str):
    config = declared(name)
    google = [one for one in made_of(name) if one.type.startswith("gcp:")]
    sent = [
        (one.type.rpartition(":")[2], {k: v for k, v in one.inputs.items() if k != "secretData"})
        for one in google
    ]
    planned = [(one.type.rpartition(".")[2], one.args) for one in plan(config).resources()]
    assert counted(sent) == counted(planned)


def test_names_and_parents_follow_from_the_component():
    made = made_of("dev")
    names = {one.name for one in made if not one.type.startswith("kubernetes:")}
    assert all(name == "gke" or name.startswith("gke-") for name in names)
    components = {one.name for one in made if one.is_component}
    for one in made:
        assert one.parent in components or one.name == "gke"
        if not one.is_component and one.type.startswith("gcp:"):
            assert one.name.startswith(one.parent)


def test_no_two_resources_share_type_and_name():
    made = made_of("prod")
    assert len({(one.type, one.name) for one in made}) == len(made)


@pytest.mark.parametrize("name", ["dev", "staging", "prod", "autopilot"])
def test_nothing_is_made_on_kubernetes_before_the_cluster_and_its_pools(name: str):
    made = made_of(name)
    first = {one.name for one in made if one.name == "gke-cluster" or one.type == NODE_POOL}
    assert on_kubernetes(made)
    for one in on_kubernetes(made):
        assert first <= one.needs, one.name


def test_nothing_runs_before_it_may_read_and_write():
    made = made_of("prod")
    roles = {one.name for one in made if one.parent == "gke-identity"}
    assert roles
    for one in on_kubernetes(made):
        assert roles <= one.needs, one.name


def test_what_is_made_on_google_waits_for_what_it_needs():
    needs = {one.name: one.needs for one in made_of("prod")}
    assert {"gke-services-compute", "gke-services-container"} <= needs["gke-network-vpc"]
    assert {"gke-network-subnetwork", "gke-network-nat", "gke-nodes-role"} <= needs["gke-cluster"]
    assert "gke-cluster" in needs["gke-cpu"]
    assert "gke-cpu" in needs["gke-train-0"]
    identity = next(name for name in needs if name.startswith("gke-identity-corpus-writes"))
    assert {"gke-cluster", "gke-storage-data"} <= needs[identity]


def test_a_pool_of_ironwood_waits_for_its_policy():
    where = {"location": "us-central1", "zones": ["us-central1-c"]}
    tpu = {"name": "train", "machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}
    needs = {one.name: one.needs for one in register(stack(tpu, cluster=where))}
    assert "gke-train-policy-0" in needs["gke-train-0"]


def test_every_pool_goes_before_another_takes_its_name_and_its_capacity():
    pools = of_type(made_of("prod"), NODE_POOL)
    assert {one.name for one in pools} == {"gke-cpu", "gke-train-0", "gke-train-1", "gke-chat-0"}
    assert all(one.deleted_before_replaced for one in pools)


def test_fields_that_gke_fills_in_never_replace_a_pool():
    for one in of_type(made_of("prod"), NODE_POOL):
        assert {"nodeConfig.advancedMachineFeatures", "nodeConfig.guestAccelerators"} <= {
            *one.ignored
        }


def test_what_a_pool_is_asked_for_is_never_ignored():
    """Spot, reservation and size of an ignored kind would stay those of the pool before."""
    stated = {"nodeConfig", "nodeConfig.spot", "nodeConfig.reservationAffinity", "autoscaling"}
    stated |= {"nodeConfig.flexStart", "initialNodeCount", "nodeCount", "upgradeSettings"}
    tpus = [one for one in of_type(made_of("prod"), NODE_POOL) if one.name != "gke-cpu"]
    assert [one.name for one in tpus if stated & {*one.ignored}] == []


def test_another_shape_is_another_pool():
    for one in of_type(made_of("prod"), NODE_POOL):
        if one.name != "gke-cpu":
            assert {"nodeConfig.machineType", "placementPolicy.tpuTopology"} <= {*one.replacing}


def test_the_token_is_sent_as_a_secret_and_nowhere_else():
    made = register(stack(CHAT, workloads=[HUB], **WITH_TOKEN))
    (version,) = of_type(made, "gcp:secretmanager/secretVersion:SecretVersion")
    assert is_secret(version.inputs["secretData"])
    assert version.inputs["secretData"]["value"] == TOKEN
    others = [one for one in made if one is not version]
    assert TOKEN not in repr(others)


def test_members_carry_the_projects_number():
    made = made_of("prod")
    members = {
        one.inputs["member"] for one in of_type(made, "gcp:storage/bucketIAMMember:BucketIAMMember")
    }
    assert members
    assert all(f"/projects/{PROJECT_NUMBER}/" in member for member in members)


def test_kubernetes_is_reached_by_the_clusters_own_name():
    providers = of_type(made_of("dev"), "pulumi:providers:kubernetes")
    for provider in providers:
        kubeconfig = json.loads(provider.inputs["kubeconfig"])
        assert kubeconfig["clusters"][0]["cluster"]["server"] == f"https://{ENDPOINT}"
    applies = {one.name: one.inputs["enableServerSideApply"] for one in providers}
    assert applies == {"gke-kubernetes": "true", "gke-kubernetes-create": "false"}


def test_the_first_preview_of_an_empty_project_needs_no_cluster():
    made = register(declared("dev"), preview=True)
    assert on_kubernetes(made)


def test_a_cluster_of_others_gets_kubernetes_objects_alone():
    made = made_of("existing")
    assert on_kubernetes(made)
    assert not [one for one in made if one.type.startswith("gcp:")]


def test_a_cluster_of_others_is_reached_as_the_stack_says():
    config = declared("existing")
    chosen = {"kubeconfig": "~/lab.yaml", "context": "lab"}
    config = replace(config, cluster=config.cluster.model_copy(update=chosen))
    for provider in of_type(register(config), "pulumi:providers:kubernetes"):
        assert provider.inputs["kubeconfig"] == str(Path.home() / "lab.yaml")
        assert provider.inputs["context"] == "lab"


def test_where_a_users_own_kubeconfig_lies_is_not_kept(monkeypatch):
    """The SDK would put the variable in, and the provider reads no list of files from there."""
    monkeypatch.setenv("KUBECONFIG", "/home/one/a:/home/one/b")
    for provider in of_type(register(declared("existing")), "pulumi:providers:kubernetes"):
        assert provider.inputs["kubeconfig"] == ""


def test_autopilot_has_no_pools_of_ours():
    assert of_type(made_of("autopilot"), NODE_POOL) == []
