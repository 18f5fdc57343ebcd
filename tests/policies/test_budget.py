"""The budget of a stack: what rules make of its resources is what its declaration costs."""

import io

import pytest

from infra.cli.check import check
from infra.cli.render import render, write
from infra.cost.estimate import Usage, estimate
from infra.cost.prices import PUBLIC
from policies.documents import read
from policies.evaluate import evaluate
from policies.rules import RULES
from policies.settings import settings_of
from policies.view import View
from tests.policies.cases import JOB, JOB_POD, SPOT_IN_US_EAST5, selector
from tests.policies.sets import changed, good, items
from tests.tools.project import REPOSITORY

RULE = "hygiene-budget"
STACKS = {
    path.stem.removeprefix("Pulumi."): path
    for path in sorted(REPOSITORY.glob("stacks/**/Pulumi.*.yaml"))
    if path.stem != "Pulumi.local"
}


def judged(view, environment="dev", strict=False, **limits):
    given = {"environments": {environment: {"strict": strict, "limits": limits}}}
    found = evaluate(view, settings_of(environment, given, RULES), environment)
    mine = [one for one in found.findings if one.rule == RULE]
    return mine, [one for one in found.not_evaluated if one.rule == RULE]


@pytest.mark.parametrize("name", STACKS)
def test_a_rendered_stack_costs_what_raytpu_cost_says(name, tmp_path):
    config = check(str(STACKS[name])).config
    assert config
    write(render(config), tmp_path)
    view = View(read([str(tmp_path)], io.BytesIO()).items, whole=True)
    expected = estimate(config, PUBLIC, Usage()).total
    if expected is None:  # no price of it is known
        found, missing = judged(view, max_usd_per_month=0)
        assert not found
        assert missing
        return
    most = int(expected.most)
    assert judged(view, max_usd_per_month=most)[0]
    found, missing = judged(view, max_usd_per_month=most + 1)
    assert not found
    assert bool(missing) == expected.partial


def zoned(**metadata):
    documents = changed(
        good("training"), JOB, {f"{JOB_POD}.nodeSelector": selector("4x4", **SPOT_IN_US_EAST5)}
    )
    for name, usd in metadata.items():
        annotations = {"raytpu/max-usd-per-month": str(usd)}
        documents["training.yaml"].append(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "annotations": annotations},
            }
        )
    return documents


def test_a_teams_budget_comes_with_its_namespace(tmp_path):
    [found], _ = judged(View(items(zoned(research=518), tmp_path)))
    assert found.message == (
        "518 USD a month with this one, over the budget of 518; write fewer replicas or a shorter "
        "deadline, or raise the budget of namespace research (raytpu/max-usd-per-month)"
    )
    assert not any(judged(View(items(zoned(research=519), tmp_path))))


def test_budgets_of_two_teams_are_apart(tmp_path):
    assert not any(judged(View(items(zoned(research=519, other=1), tmp_path))))
    assert judged(View(items(zoned(research=518, other=1), tmp_path)))[0]


def test_what_has_no_price_is_not_evaluated_and_fails_under_strict(tmp_path):
    view = View(items(good("training"), tmp_path))
    for strict, level in ((False, "advisory"), (True, "mandatory")):
        found, [missing] = judged(view, strict=strict, max_usd_per_month=1_000_000)
        assert not found
        assert missing.level == level
        assert missing.message == (
            "hygiene-budget was not evaluated for RayJob/pretrain: "
            "the price of v6e spot in a zone that is not said is not known"
        )


def test_pods_of_no_ray_cluster_are_not_taken_for_free(tmp_path):
    _, missing = judged(View(items(good("others"), tmp_path)), max_usd_per_month=1_000_000)
    assert {one.item.kind for one in missing} >= {"JobSet", "Pod"}
