"""A team's namespace: closed from outside, bounded in chips, and open to its members to look."""

import json

import pytest

from tests.infra.ray.stacks import FILES, SERVE, TRAIN, gke, made, shipped, team

CHAT = {"name": "chat", "machine_type": "ct6e-standard-8t", "topology": "2x4"}


def object_of(config, key):
    return made(config)[key].manifest


@pytest.mark.parametrize("stack", FILES)
def test_all_but_classes_lie_in_the_teams_namespace(stack):
    config = shipped(stack)
    for one in made(config).values():
        if one.manifest["kind"] not in {"Namespace", "ComputeClass"}:
            assert one.manifest["metadata"]["namespace"] == team(config).name


# Chips that each stack may hold at once, by hand: of all its slices, whatever their shape.
CHIPS = {
    "dev": 8,
    "staging": 16 + 16,
    "prod": 2 * 32 + 2 * 8,
    "autopilot": 8,
    "existing": 16 + 4,
    "llama-70b": 8,
    "mistral-7b": 2 * 4,
    "qwen3-lora": 8 + 8,
    "second-choice": 32 + 16,
    "tpu7x": 8,
    "two-shapes": 32 + 16,
    "v5e": 8,
    "v5p": 16,
}


@pytest.mark.parametrize("stack", FILES)
def test_the_quota_is_what_the_stack_declares_and_no_door_to_the_world(stack):
    assert object_of(shipped(stack), "ResourceQuota/raytpu")["spec"]["hard"] == {
        "requests.google.com/tpu": str(CHIPS[stack]),
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }


def test_a_quota_of_the_teams_own_goes_before():
    own = {"name": "research", "cost_center": "ml", "max_chips": 64}
    hard = object_of(gke([CHAT], [SERVE], team=own), "ResourceQuota/raytpu")["spec"]["hard"]
    assert hard["requests.google.com/tpu"] == "64"


@pytest.mark.parametrize(
    ("budget", "told"),
    [({"max_usd_per_month": 900}, {"raytpu/max-usd-per-month": "900"}), ({}, {})],
)
def test_a_namespace_tells_policies_the_operators_version_and_the_teams_budget(budget, told):
    own = {"name": "research", "cost_center": "ml", **budget}
    namespace = object_of(gke([CHAT], [SERVE], team=own), "Namespace/research")
    assert namespace["metadata"]["annotations"] == {"raytpu/kuberay": "1.5", **told}


def test_an_upgrade_beside_the_old_cluster_has_room_in_the_quota():
    config = gke([{**CHAT, "provision": "compute_class"}], [{**SERVE, "upgrade": "new_cluster"}])
    hard = object_of(config, "ResourceQuota/raytpu")["spec"]["hard"]
    assert hard["requests.google.com/tpu"] == "16"


def test_only_the_namespace_the_operator_and_the_metrics_reach_a_pod():
    config = shipped("dev")
    default = object_of(config, "NetworkPolicy/raytpu-default")["spec"]
    assert (default["podSelector"], default["policyTypes"]) == ({}, ["Ingress"])
    within, operator = default["ingress"]
    assert within == {"from": [{"podSelector": {}}]}
    by_name, by_component, system = operator["from"]
    # Namespace and label in one peer: apart they would open the ports to every namespace.
    for peer, label in ((by_name, "name"), (by_component, "component")):
        assert peer == {
            "namespaceSelector": {},
            "podSelector": {"matchLabels": {f"app.kubernetes.io/{label}": "kuberay-operator"}},
        }
    (named,) = system["namespaceSelector"]["matchExpressions"]
    assert (named["operator"], named["values"]) == ("In", ["kube-system"])
    assert [port["port"] for port in operator["ports"]] == [8265, 8000]
    metrics = object_of(config, "NetworkPolicy/raytpu-metrics")["spec"]["ingress"]
    assert [port["port"] for rule in metrics for port in rule["ports"]] == [8080]


def test_members_look_and_port_forward_but_read_no_secret_and_start_no_pod():
    config = shipped("staging")
    rules = object_of(config, "Role/raytpu-members")["rules"]
    rights = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert ("pods/portforward", "create") in rights
    assert ("rayjobs", "get") in rights
    assert not {resource for resource, _ in rights} & {"*", "secrets", "pods/exec"}
    assert {resource for resource, verb in rights if verb == "create"} == {"pods/portforward"}
    assert "*" not in {verb for _, verb in rights}
    binding = object_of(config, "RoleBinding/raytpu-members")
    assert {(one["kind"], one["name"]) for one in binding["subjects"]} == {
        ("User", "research@acme.example"),
        ("Group", "research@acme.example"),
    }
    assert "ClusterRole" not in json.dumps([binding, rules])


def test_a_team_without_members_has_no_role():
    assert not {key for key in made(shipped("dev")) if key.startswith("Role")}


def test_each_workload_has_a_service_account_of_its_own_without_a_token():
    config = shipped("prod")
    for name in ("corpus", "pretrain", "chat"):
        account = object_of(config, f"ServiceAccount/{name}")
        assert account["automountServiceAccountToken"] is False


def test_of_a_service_of_several_slices_one_at_a_time_may_be_taken():
    budget = object_of(shipped("prod"), "PodDisruptionBudget/chat")["spec"]
    assert budget["minAvailable"] == 1
    assert budget["selector"]["matchLabels"] == {
        "raytpu/workload": "chat",
        "ray.io/node-type": "worker",
    }
    several = {**CHAT, "machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 3}
    budget = object_of(gke([several], [SERVE]), "PodDisruptionBudget/chat")["spec"]
    assert budget["minAvailable"] == 8  # of 3 x 4 hosts, the 4 of one slice
    assert "PodDisruptionBudget/chat" not in made(shipped("dev"))


def test_a_training_run_has_no_budget_that_would_hold_up_the_nodes():
    tpu = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
    assert not [key for key in made(gke([tpu], [TRAIN])) if key.startswith("PodDisruption")]
