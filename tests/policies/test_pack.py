"""The pack in the real engine with the stand-in cloud; and what only a preview's steps show."""

import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from pulumi_policy import (
    PolicyCustomTimeouts,
    PolicyResource,
    PolicyResourceOptions,
    StackValidationArgs,
)
from typer.testing import CliRunner

from infra.cli.app import app
from policies.documents import read
from policies.evaluate import default_settings, evaluate
from policies.pack import judge
from policies.preview import UNKNOWN, plain
from policies.view import Unknown, View
from tests.gke.cloud_stack import CloudStack, Done
from tests.gke.journey import LIMIT_S, prepare
from tests.policies.sets import good
from tests.tools.project import REPOSITORY

PACK = ("--policy-pack", str(REPOSITORY / "policies"))


@dataclass
class Previews:
    stack: CloudStack
    good: Done
    strict: Done
    bad: Done
    steps: str
    """`pulumi preview --json` of a change to a stack that is up."""
    made: tuple[Done, Done]
    """`make review` of the stack before it is there, and of that change."""


@pytest.fixture(scope="module")
def previews(tmp_path_factory) -> Previews:
    root: Path = tmp_path_factory.mktemp("pack")
    stack = prepare("dev", root)
    config = root / "strict.json"
    config.write_text(json.dumps({f"raytpu-{x}": {"strict": True} for x in LEVELS}))
    limits = {"environments": {"dev": {"limits": {"generations": ["v5e"], "max_chips": 4}}}}
    narrow = root / "narrow.json"
    narrow.write_text(json.dumps({f"raytpu-{x}": limits for x in LEVELS}))
    with stack.cloud:
        found = Previews(
            stack,
            good=stack.preview(*PACK),
            strict=stack.preview(*PACK, "--policy-pack-config", str(config)),
            bad=stack.preview(*PACK, "--policy-pack-config", str(narrow)),
            steps="",
            made=(_make_review(stack), Done(0, "")),
        )
        up = stack.up()
        assert up.code == 0, up.output
        [chat] = stack.declared["raytpu:slices"]
        stack.declare(slices=[{**chat, "machine_type": "ct6e-standard-4t", "topology": "2x2"}])
        found.steps = stack.pulumi("preview", "--json", "--show-sames").output
        found.made = (found.made[0], _make_review(stack))
    return found


def _make_review(stack: CloudStack) -> Done:
    """As users run it, but for uv: the environment is there, and is not this folder's to sync."""
    makefile = stack.root / "Makefile"
    if not makefile.exists():
        makefile.symlink_to(REPOSITORY / "Makefile")
    done = subprocess.run(
        ["make", "review", f"STACK={stack.name}", "UV=/bin/true"],
        cwd=stack.root,
        env=stack.environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout + done.stderr)


LEVELS = ("mandatory", "advisory")


def test_a_good_stack_passes_the_pack(previews):
    assert previews.good.code == 0, previews.good.output
    assert "raytpu@v0.1.0" in previews.good.output
    assert "mandatory]" not in previews.good.output


def test_a_rule_that_meets_an_unknown_value_is_named(previews):
    """The project's number, of which the member of a role is made, is not known before `up`."""
    line = "security-public-access was not evaluated for gcp.secretmanager.SecretIamMember"
    assert line in previews.good.output


def test_it_fails_under_strict(previews):
    assert previews.strict.code != 0
    assert "security-public-access was not evaluated" in previews.strict.output


def test_rules_of_shapes_decide_beside_unknown_values(previews):
    assert previews.good.output.count("was not evaluated") == 1, previews.good.output


def test_a_stack_over_its_limits_is_refused(previews):
    assert previews.bad.code != 0
    said = previews.bad.output
    assert "[mandatory]" in said
    assert "hygiene-generations: nodeConfig.machineType: v6e is not for this team" in said
    assert "hygiene-chips: spec: 8 chips with this one, over the budget of 4" in said


def test_review_of_the_steps_refuses_a_pool_that_is_replaced(previews, tmp_path):
    (tmp_path / "preview.json").write_text(previews.steps)
    command = ["review", "--preview", str(tmp_path / "preview.json"), "--json"]
    done = CliRunner().invoke(app, command)
    found = json.loads(done.stdout)
    assert found["environment"] == "dev"
    assert [(f["rule"], f["name"]) for f in found["findings"]] == [("changes-keep", "gke-chat-0")]
    assert done.exit_code == 1


def test_make_review_lets_a_good_stack_pass(previews):
    done = previews.made[0]
    assert done.code == 0, done.output
    assert "objects by the rules of dev: 0 mandatory" in done.output


def test_make_review_refuses_a_pool_that_is_replaced(previews):
    done = previews.made[1]
    assert done.code == 2, done.output
    assert "it would replace gke-chat-0" in done.output
    assert "[mandatory: changes-keep]" in done.output


def resource(type_, name, props):
    """As a policy is shown it."""
    urn = "urn:pulumi:prod::raytpu::x::y"
    options = PolicyResourceOptions(
        protect=False,
        ignore_changes=[],
        delete_before_replace=None,
        aliases=[],
        custom_timeouts=PolicyCustomTimeouts(0, 0, 0),
        additional_secret_outputs=[],
    )
    return PolicyResource(type_, props, urn, name, options, None, None, [], {})


def test_the_pack_and_review_say_the_same_of_the_same_objects(tmp_path):
    kinds = {
        "RayJob": "kubernetes:ray.io/v1:RayJob",
        "NetworkPolicy": "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        "ResourceQuota": "kubernetes:core/v1:ResourceQuota",
    }
    documents = good("training")["training.yaml"]
    documents[0]["spec"]["shutdownAfterJobFinishes"] = False
    documents[0]["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["numOfHosts"] = 3.0
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all(plain(documents)))
    mine = View(read([str(tmp_path)], io.BytesIO()).items, whole=True)
    theirs = [resource(kinds[one["kind"]], one["metadata"]["name"], one) for one in documents]
    seen = [judge(theirs, {}), evaluate(mine, default_settings("prod"), "prod")]
    said = [[(f.rule, f.level, f.fault.path, f.fault.what) for f in one.findings] for one in seen]
    assert said[0] == said[1]
    assert {rule for rule, *_ in said[0]} == {"capacity-job-ends", "slices-hosts"}


@pytest.mark.parametrize("sign", sorted(UNKNOWN))
def test_a_value_that_is_not_known_never_counts_as_absent(sign):
    pool = {"nodeConfig": {"machineType": "ct6e-standard-4t", "spot": sign}}
    verdict = judge([resource("gcp:container/nodePool:NodePool", "p", pool)], {})
    assert "pools-terms" in {one.rule for one in verdict.not_evaluated}


def test_signs_of_unknown_values_are_the_sdks():
    from pulumi_policy import proxy

    names = [name for name in vars(proxy) if name.startswith("UNKNOWN_")]
    assert {getattr(proxy, name) for name in names} == UNKNOWN


def test_numbers_of_the_protocol_are_whole_again():
    assert plain({"a": [4.0, 0.5, True, None]}) == {"a": [4, 0.5, True, None]}
    assert isinstance(plain(4.0), int)
    assert isinstance(plain(next(iter(UNKNOWN))), Unknown)


def test_a_fault_of_the_packs_own_configuration_is_said():
    from policies.pack import policies

    mandatory, _ = policies()
    said = []

    config = {"environments": {"dev": {"no": 1}}}
    mandatory.validate(StackValidationArgs([], config), lambda message, _: said.append(message))
    assert len(said) == 1
    assert said[0].startswith("the pack's configuration: environments.dev.no: extra inputs")


def test_no_module_hides_one_of_pythons_own():
    """The engine starts the folder, so its modules are found before all others."""
    names = {path.stem for path in (REPOSITORY / "policies").glob("*.py")}
    assert not names & sys.stdlib_module_names
