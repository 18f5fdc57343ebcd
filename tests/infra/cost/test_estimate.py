"""Estimates, against sums worked out by hand from the printed prices."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.cost.estimate import Usage, estimate
from infra.cost.prices import PUBLIC, ChipPrice, PriceList, Prices
from tests.infra.cost.stacks import CHAT, DATA, SLICE, TRAIN, line, of, of_file
from tests.infra.gke.stacks import stack

SPOT = [{"spot": {}}]


def test_a_served_slice_is_paid_all_month():
    [option] = line(of(CHAT, capacity=SPOT), "slice train").options
    # v6e 4x4 spot in us-east5-b: 16 chips x 730 h x 1.35 USD.
    assert (option.amount, option.hours, option.unit_hours) == (16, 730, 11680)
    assert option.usd == pytest.approx(15768)


def test_a_stack_is_the_sum_of_its_parts():
    total = of_file("dev").total
    assert total
    # 8 chips x 730 h x 1.35, the cluster's 0.10 an hour, and 1 to 4 nodes of 0.3885 an hour.
    assert total.least == pytest.approx(7884 + 73 + 283.6, abs=1)
    assert total.most == pytest.approx(7884 + 73 + 1134.4, abs=1)
    assert not total.partial


def test_a_training_job_is_paid_for_as_long_as_its_deadline_allows():
    priced = of(DATA, TRAIN | {"deadline": "3d"}, capacity=SPOT)
    [option] = line(priced, "slice train").options
    assert option.hours == 72
    assert option.usd == pytest.approx(16 * 72 * 1.35)


@pytest.mark.parametrize(("runs", "hours"), [(0, 0), (1, 72), (4, 288), (40, 730)])
def test_runs_of_a_job_add_up_to_a_month_at_most(runs, hours):
    usage = Usage(runs_per_month=runs)
    priced = of(DATA, TRAIN | {"deadline": "3d"}, usage=usage)
    assert line(priced, "slice train").options[0].hours == hours


def test_kept_nodes_are_paid_while_idle():
    [kept] = line(of(keep_nodes=True), "slice train").options
    [empty] = line(of(), "slice train").options
    assert (kept.hours, empty.hours) == (730, 0)
    assert (kept.usd, empty.usd) == (pytest.approx(16 * 730 * 2.7), 0)
    [trained] = line(of(DATA, TRAIN | {"deadline": "3d"}, keep_nodes=True), "slice train").options
    assert (trained.hours, trained.note) == (730, "kept, of which idle 658 hours or more")
    [served] = line(of(CHAT, keep_nodes=True), "slice train").options
    assert (served.hours, served.note) == (730, "kept")


def test_rungs_are_ways_to_the_same_slice_of_which_one_is_paid():
    span = line(of(CHAT, capacity=[*SPOT, {"on_demand": {}}]), "slice train").span
    assert span
    assert (span.least, span.most) == (pytest.approx(15768), pytest.approx(31536))


def test_zones_of_other_prices_are_ways_of_their_own():
    central = {"location": "us-central1", "zones": ["us-central1-a", "us-central1-b"]}
    same = of(CHAT, cluster=central, provision="compute_class")
    assert len(line(same, "slice train").options) == 1
    south = {"location": "us-south1", "zones": ["us-south1-a", "us-south1-b"]}
    other = line(of(CHAT, cluster=south, provision="compute_class"), "slice train")
    assert [option.how for option in other.options] == [
        "4x4 of v6e, on-demand, us-south1-a",
        "4x4 of v6e, on-demand, us-south1-b",
    ]
    assert [option.usd for option in other.options] == [pytest.approx(31536), None]


def test_a_rung_in_a_zone_of_its_own_has_the_price_of_that():
    zones = {"zones": ["us-east5-a", "us-east5-b"]}
    [option] = line(
        of(CHAT, cluster=zones, capacity=[{"spot": {"zone": "us-east5-b"}}]), "slice train"
    ).options
    assert option.how.endswith("us-east5-b")


def test_a_sum_without_a_price_says_that_it_is_partial():
    capacity = [{"flex_start": {"max_run_duration": "2d"}}, *SPOT]
    priced = of(CHAT, capacity=capacity)
    flex, spot = line(priced, "slice train").options
    assert flex.usd is None
    assert "a host ends after 2d" in flex.note
    assert priced.total
    assert priced.total.partial
    assert spot.usd == pytest.approx(15768)
    assert priced.total.least == pytest.approx(15768 + 73 + 283.6, abs=1)


def test_a_slice_of_unknown_price_is_not_free():
    priced = of(CHAT, capacity=[{"reservation": {"name": "ours"}}])
    assert line(priced, "slice train").span is None
    assert priced.total
    assert priced.total.partial


def test_without_any_known_price_there_is_no_sum():
    assert of(CHAT, prices=Prices(())).total is None
    assert of_file("existing").total is None


def test_fallbacks_are_alternatives():
    options = line(of_file("two-shapes"), "slice train").options
    assert [(option.amount, option.how.split(",")[0]) for option in options] == [
        (32, "4x8 of v6e"),
        (16, "4x4 of v5e"),
    ]


def test_a_second_cluster_is_paid_on_top_while_it_starts():
    server = CHAT | {"upgrade": "new_cluster", "startup_timeout": "45m"}
    priced = of(server, capacity=SPOT, provision="compute_class")
    [option] = line(priced, "upgrade of chat").options
    assert option.unit_hours == 12  # 16 chips, three quarters of an hour
    assert option.usd == pytest.approx(16.2)
    plain = of(CHAT, capacity=SPOT, provision="compute_class")
    assert plain.upgrades == ()
    assert plain.total == priced.total


def test_autopilot_has_a_premium_that_no_list_knows():
    priced = of_file("autopilot")
    assert line(priced, "Autopilot").span is None
    assert {one.name for one in priced.lines} == {"slice chat", "cluster", "CPU pods", "Autopilot"}


def test_a_cluster_of_others_is_theirs_to_pay():
    assert {one.name for one in of_file("existing").lines} == {"slice train", "slice chat"}


def test_the_budget_is_of_the_worst_that_is_known():
    def over(most):
        team = {"name": "research", "cost_center": "ml", "max_usd_per_month": most}
        return estimate(stack(SLICE, workloads=[CHAT], team=team), PUBLIC, Usage()).over_budget

    # 31,536 on demand + 73 + 1,134.4
    assert over(32743)
    assert not over(32744)


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 40),
    more=st.integers(1, 40),
    topology=st.sampled_from(["2x2", "4x4", "4x8"]),
    hours=st.floats(1, 744),
    usd=st.floats(0.01, 50),
)
def test_price_grows_with_count_in_proportion(count, more, topology, hours, usd):
    own = PriceList(
        source="any", date="2026-10-01", chips=(ChipPrice(generation="v6e", on_demand=usd),)
    )
    usage = Usage(hours_per_month=hours)

    def price(copies):
        priced = of(CHAT, prices=Prices((own,)), usage=usage, count=copies, topology=topology)
        [option] = line(priced, "slice train").options
        assert option.usd is not None
        return option.usd

    chips = math.prod(map(int, topology.split("x")))
    assert price(count) == pytest.approx(count * chips * hours * usd)
    assert price(count + more) > price(count)
