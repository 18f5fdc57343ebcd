"""Each rule lets a correct set pass and finds each field that is broken in it."""

import itertools

import pytest
import yaml

from policies.evaluate import evaluate
from policies.rules import RULES
from policies.settings import settings_of
from policies.view import View
from tests.policies.cases import CASES, CHAT_POD, HF, RIGHT, SERVICE, TOLD, selector, serve, told
from tests.policies.sets import GONE, SETS, changed, good, items

ENVIRONMENTS = ("dev", "staging", "prod")
ELSEWHERE = {"changes-keep", "pools-groups", "capacity-auto-creation"}
"""Rules over more than one document, with tests of their own."""


def verdict(documents, folder, *, environment="prod", limits=None, whole=False):
    given = {"environments": {environment: {"limits": limits or {}}}}
    settings = settings_of(environment, given, RULES)
    return evaluate(View(items(documents, folder), whole=whole), settings, environment)


def rules(found):
    return {finding.rule for finding in found.findings}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("name", SETS)
def test_a_correct_set_has_no_finding(name, environment, tmp_path):
    found = verdict(good(name), tmp_path, environment=environment)
    assert not found.findings
    assert not found.not_evaluated


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule} {case.says}")
def test_a_broken_field_is_found_and_said(case, tmp_path):
    documents = changed(good(case.good), case.of, case.changes)
    found = verdict(
        documents,
        tmp_path,
        environment=case.environment,
        limits=case.limits,
        whole=case.whole,
    )
    mine = [f for f in found.findings if f.rule == case.rule]
    said = [f.message for f in mine]
    assert all(f.fault.what and f.fault.fix and f.fault.path for f in mine)
    assert any(case.says in line for line in said), [f.message for f in found.findings]
    assert all(0 < len(line) < 300 and "\n" not in line for line in said)


def test_an_engine_on_tpu7x_has_two_shards_a_chip(tmp_path):
    ironwood = {
        f"{CHAT_POD}.nodeSelector": selector("2x2x4", "tpu7x"),
        "spec.serveConfigV2": serve(tensor_parallel_size=32),
    }
    found = verdict(changed(good("serving"), SERVICE, ironwood), tmp_path)
    assert "slices-engine" not in rules(found)


@pytest.mark.parametrize("rule", sorted(RULES.keys() - ELSEWHERE))
def test_a_rule_has_a_passing_input_and_one_that_fails(rule, tmp_path):
    mine = [case for case in CASES if case.rule == rule]
    assert mine, "write a case"
    passing = items(good(mine[0].good), tmp_path)
    assert any([*RULES[rule].over(item)] for item in passing), "it judges nothing of what passes"


@pytest.mark.parametrize(
    ("job", "loses"),
    [("infer", False), ("check", False), ("check.main spmd", True), ("spmd", True)],
)
def test_a_job_that_keeps_each_finished_part_need_not_say_how_often(job, loses, tmp_path):
    entrypoint = told(RIGHT, '{"max_failures": 20}').replace("workloads.train", f"workloads.{job}")
    entrypoint = entrypoint.replace("check.main spmd", "check.main workloads.spmd")
    found = verdict(changed(good("told"), TOLD, {"spec.entrypoint": entrypoint}), tmp_path)
    assert ("runs-lose-little" in rules(found)) == loses


def test_no_message_shows_a_secret(tmp_path):
    shown = [case for case in CASES if case.rule.startswith("secrets-literal") and case.changes]
    for index, case in enumerate(shown):
        folder = tmp_path / str(index)
        folder.mkdir()
        found = verdict(changed(good(case.good), case.of, case.changes), folder)
        lines = " ".join(f"{f.place} {f.message}" for f in found.findings)
        for secret in (HF, "short", "0123456789", "abcdefgh", "hunter22", "abc\n"):
            assert secret not in lines


def test_a_pod_without_a_digest_is_as_good_in_dev(tmp_path):
    image = {"spec.containers[0].image": "us-docker.pkg.dev/acme/bench/bench:1"}
    documents = changed(good("others"), "Pod/one", image)
    assert rules(verdict(documents, tmp_path, environment="dev")) == set()


def test_a_level_can_be_set_for_one_environment(tmp_path):
    image = {"spec.containers[0].image": "us-docker.pkg.dev/acme/bench/bench:1"}
    documents = changed(good("others"), "Pod/one", image)
    given = {"environments": {"prod": {"levels": {"images-pinned": "off"}}}}
    view = View(items(documents, tmp_path))
    assert not evaluate(view, settings_of("prod", given, RULES), "prod").findings
    assert evaluate(view, settings_of("prod", None, RULES), "prod").refused


POOL_OF = {"raytpu/slice": "train"}


def both(**group):
    """The hand-written run on the hand-written pool of its slice."""
    from tests.policies.cases import JOB, JOB_GROUP, JOB_POD, selector

    own = {f"{JOB_POD}.nodeSelector": selector("4x4", **POOL_OF), **group}
    own = {path.replace("GROUP", JOB_GROUP): value for path, value in own.items()}
    return {**good("cloud"), **changed(good("training"), JOB, own)}


def test_a_group_finds_its_pool(tmp_path):
    assert rules(verdict(both(), tmp_path)) == set()


def test_a_group_of_more_slices_than_pools_waits(tmp_path):
    found = verdict(both(**{"GROUP.maxReplicas": 2}), tmp_path)
    assert "pools-groups" in rules(found)


def test_a_group_of_another_shape_than_its_pool_waits(tmp_path):
    from tests.policies.cases import TRAIN

    documents = changed(both(), TRAIN, {"placement_policy.tpu_topology": "4x8"})
    found = [f for f in verdict(documents, tmp_path).findings if f.rule == "pools-groups"]
    assert "pool train-0 is ct6e-standard-4t 4x8" in found[0].fault.what


def test_a_class_makes_nothing_on_an_old_cluster_without_auto_provisioning(tmp_path):
    from tests.policies.cases import CLUSTER

    documents = {**good("cloud"), **good("serving")}
    assert rules(verdict(documents, tmp_path)) == set()
    old = changed(documents, CLUSTER, {"min_master_version": "1.32.4-gke.1"})
    assert rules(verdict(old, tmp_path)) == {"capacity-auto-creation"}
    enabled = {"min_master_version": "1.32.4-gke.1", "cluster_autoscaling.enabled": True}
    assert rules(verdict(changed(documents, CLUSTER, enabled), tmp_path)) == set()


def test_a_second_slice_may_be_declared_by_a_quota_or_an_allowance(tmp_path):
    from tests.policies.cases import SERVICE

    documents = changed(good("serving"), SERVICE, {"spec.upgradeStrategy": GONE})
    chips = {"spec.hard": {"requests.google.com/tpu": "64"}}
    doubled = changed(documents, "ResourceQuota/tpu", chips)
    assert rules(verdict(doubled, tmp_path)) == set()
    given = {"environments": {"prod": {"allow": {"second_slice": ["chat"]}}}}
    view = View(items(documents, tmp_path))
    assert not evaluate(view, settings_of("prod", given, RULES), "prod").findings


@pytest.mark.parametrize(
    ("machine", "chips", "topology"),
    [("tpu-v5-lite-podslice", 1, "1x1"), ("tpu-v6e-slice", 1, "1x1"), ("tpu-v6e-slice", 8, "2x4")],
)
def test_the_smallest_slices_are_let_through(machine, chips, topology, tmp_path):
    from tests.policies.cases import chips as limits
    from tests.policies.cases import selector

    changes = {
        "spec.nodeSelector": selector(topology, machine),
        "spec.containers[0].resources": limits(chips),
    }
    assert rules(verdict(changed(good("others"), "Pod/one", changes), tmp_path)) == set()


def test_two_hosts_of_four_chips_are_a_slice_too(tmp_path):
    """P02: v6e 2x4 is one host of 8 chips, or two of 4."""
    from tests.policies.cases import JOB, JOB_CONTAINER, JOB_GROUP, JOB_POD, selector
    from tests.policies.cases import chips as limits

    run = "python train.py --num_workers 2 --output gs://acme-runs/p"
    changes = {
        f"{JOB_POD}.nodeSelector": selector("2x4"),
        f"{JOB_CONTAINER}.resources": limits("4"),
        f"{JOB_GROUP}.numOfHosts": 2,
        "spec.entrypoint": run,
    }
    assert rules(verdict(changed(good("training"), JOB, changes), tmp_path)) == set()


LEADER = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: a}
spec:
  leaderWorkerTemplate:
    size: SIZE
    leaderTemplate: {spec: {containers: [{name: a, resources: LEADER}]}}
    workerTemplate:
      spec:
        nodeSelector:
          cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice
          cloud.google.com/gke-tpu-topology: 4x4
        containers: [{name: a, resources: {limits: {google.com/tpu: 4}}}]
"""


@pytest.mark.parametrize(
    ("size", "leader", "expected"),
    [(4, None, set()), (2, None, {"slices-hosts"}), (5, {}, set())],
)
def test_a_leader_without_chips_is_no_host_of_the_slice(size, leader, expected, tmp_path):
    document = yaml.safe_load(LEADER.replace("SIZE", str(size)).replace("LEADER", "{}"))
    if leader is None:
        del document["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    assert rules(verdict({"a.yaml": [document]}, tmp_path)) == expected


def test_googles_own_classes_of_autopilot_may_be_pinned(tmp_path):
    labels = {"cloud.google.com/compute-class": "Accelerator", "cloud.google.com/gke-spot": "true"}
    for value, expected in (("Accelerator", set()), ("mine", {"capacity-pin"})):
        labels["cloud.google.com/compute-class"] = value
        changes = {"spec.nodeSelector": labels, "spec.containers[0].resources": {}}
        assert rules(verdict(changed(good("others"), "Pod/one", changes), tmp_path)) == expected


def test_the_deployment_and_its_engine_do_not_both_ask_for_chips(tmp_path):
    """P25: 16 chips asked, 8 there."""
    from tests.policies.cases import CHAT_CONTAINER, CHAT_GROUP, CHAT_POD, SERVICE, selector
    from tests.policies.cases import chips as limits

    config = (
        "applications:\n- name: llm\n  args: {engine_kwargs: {tensor_parallel_size: 8}}\n"
        "  deployments: [{name: S, ray_actor_options: {resources: {TPU: %d}}}]\n"
    )
    for taken, expected in ((8, {"slices-engine"}), (0, set())):
        changes = {
            f"{CHAT_POD}.nodeSelector": selector("2x4"),
            f"{CHAT_CONTAINER}.resources": limits("8"),
            f"{CHAT_GROUP}.numOfHosts": 1,
            "spec.serveConfigV2": config % taken,
        }
        documents = changed(good("serving"), SERVICE, changes)
        documents["serving.yaml"] = [
            d for d in documents["serving.yaml"] if d["kind"] != "ComputeClass"
        ]
        assert rules(verdict(documents, tmp_path)) == expected


RAW = set(
    "P01 P02 P03 P06 P07 P09 P10 P12 P14 P16 P18 P19 P20 P23 P29 P30 P31 P32 P34 P40".split()  # noqa: SIM905
)
"""Reported faults that a manifest or a preview can show, each caught by a case above. P04 and P25
have tests of their own; P35 and P37 are of the preview and the pack."""


def test_every_reported_fault_that_a_manifest_shows_has_a_case():
    assert {case.pain for case in CASES if case.pain} == RAW


def test_rules_claim_no_reported_fault_without_a_case():
    claimed = set(itertools.chain.from_iterable(rule.pains for rule in RULES.values()))
    assert claimed <= RAW | {"P04", "P25"}


def test_the_operator_is_known_by_an_image_that_is_here_too(tmp_path):
    from tests.policies.cases import JOB

    documents = changed(good("training"), JOB, {"metadata.annotations.raytpu/kuberay": GONE})
    found = verdict(documents, tmp_path)
    [missing] = found.not_evaluated
    assert missing.message == (
        "runs-operator-version was not evaluated for RayJob/pretrain: "
        "the version of its operator is not known"
    )
    for version, expected in (("v1.5.1", {"runs-operator-version"}), ("v1.6.0", set())):
        image = f"us-docker.pkg.dev/acme/kuberay/operator:{version}@sha256:{'1' * 64}"
        spec = {"template": {"spec": {"containers": [{"name": "a", "image": image}]}}}
        operator = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "kuberay-operator"},
            "spec": spec,
        }
        both = {**documents, "operator.yaml": [operator]}
        assert rules(verdict(both, tmp_path)) == expected


@pytest.mark.parametrize("version", [GONE, "nightly"])
def test_a_ray_of_no_known_release_is_not_evaluated(version, tmp_path):

    documents = changed(good("told"), TOLD, {"spec.rayClusterSpec.rayVersion": version})
    found = verdict(documents, tmp_path)
    assert [one.rule for one in found.not_evaluated] == ["runs-ray-version"]
    assert not found.findings
