"""Prices: what is known where, and that nothing else is made up."""

import re

import pytest

from infra.config.stackfile import UnreadableError
from infra.cost.prices import PUBLIC, with_own
from infra.errors import ConfigError
from infra.tpu.catalog import GENERATIONS
from tests.tools.project import REPOSITORY

# By hand, from lines of other shapes of the catalogue that the table is taken from: USD an hour
# for a whole slice, and its chips.
LISTED = [
    ("v6e", "europe-west4-a", "on_demand", 760.32, 256),
    ("v6e", "us-south1-ai1b", "spot", 86.4, 64),
    ("v5p", "us-east5-a", "on_demand", 25267.2, 6016),
    ("v5p", "us-south1-b", "on_demand", 29362.176, 6144),
]
# GKE's own autoscaler (7d25050) has one price of each for all zones.
AUTOSCALER = [
    ("v4", "us-central2-b", 3.22),
    ("v5e", "us-central1-a", 1.2),
    ("v5p", "us-east5-a", 4.2),
    ("v6e", "us-east5-b", 2.7),
]
# kubernetes/autoscaler 0411d1c, gce_price_info.go.
MACHINES = [("n2-standard-8", 0.3885), ("n2-standard-16", 0.7769), ("n2-standard-128", 6.2156)]


@pytest.mark.parametrize(("generation", "zone", "kind", "slice_usd", "chips"), LISTED)
def test_a_chip_has_its_part_of_what_a_slice_is_listed_for(
    generation, zone, kind, slice_usd, chips
):
    price = PUBLIC.chip(generation, kind, zone)
    assert price
    assert price.usd_per_hour == pytest.approx(slice_usd / chips, rel=1e-3)


@pytest.mark.parametrize(("generation", "zone", "usd"), AUTOSCALER)
def test_on_demand_agrees_with_the_autoscaler(generation, zone, usd):
    price = PUBLIC.chip(generation, "on_demand", zone)
    assert price
    assert price.usd_per_hour == usd


@pytest.mark.parametrize(("machine_type", "usd"), MACHINES)
def test_machines_agree_with_the_autoscaler(machine_type, usd):
    price = PUBLIC.machine(machine_type, "us-central1")
    assert price
    assert price.usd_per_hour == pytest.approx(usd, abs=1e-4)


@pytest.mark.parametrize(
    ("generation", "kind", "zone"),
    [
        ("v6e", "flex_start", "us-east5-b"),
        ("v6e", "reservation", "us-east5-b"),
        ("v6e", "queued", "us-east5-b"),
        ("v6e", "spot", "southamerica-west1-a"),
        ("v6e", "spot", "mars-east1-a"),
        ("v6e", "spot", None),
        ("tpu7x", "spot", "us-central1-c"),
    ],
)
def test_what_no_list_has_is_unknown(generation, kind, zone):
    assert PUBLIC.chip(generation, kind, zone) is None


def test_a_machine_of_no_list_is_unknown():
    assert PUBLIC.machine("e2-standard-8", "us-central1") is None
    assert PUBLIC.machine("n2-standard-8", "mars-east1") is None


def test_spot_is_never_dearer_than_on_demand():
    rows = [row for one in PUBLIC.lists for row in one.chips]
    both = [(row.spot, row.on_demand) for row in rows if row.spot and row.on_demand]
    assert len(both) > 20
    assert all(spot < on_demand for spot, on_demand in both)


def test_no_zone_is_listed_twice_for_a_generation():
    for generation in GENERATIONS:
        rows = [row for one in PUBLIC.lists for row in one.chips if row.generation == generation]
        zones = [zone for row in rows for zone in row.zones or ()]
        assert zones
        assert len(zones) == len({*zones}), generation


OWN = """
source: contract 7
date: "2026-10-01"
chips:
  - {generation: v6e, zones: [us-east5-b], reservation: 1.5}
  - {generation: v6e, flex_start: 2}
machines: [{family: e2-standard, vcpu: 0.03}]
cluster: 0
"""


def own(tmp_path, text=OWN):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    return with_own(path)


def usd(price):
    return price and price.usd_per_hour


def test_ones_own_prices_come_first_and_the_public_ones_stay(tmp_path):
    prices = own(tmp_path)
    assert usd(prices.chip("v6e", "reservation", "us-east5-b")) == 1.5
    assert usd(prices.chip("v6e", "reservation", "us-east5-a")) is None
    assert usd(prices.chip("v6e", "flex_start", "us-east5-a")) == 2
    assert usd(prices.chip("v6e", "flex_start", None)) == 2
    assert usd(prices.chip("v6e", "on_demand", "us-east5-b")) == 2.7
    assert usd(prices.machine("e2-standard-4", "us-east5")) == 0.12
    assert usd(prices.cluster()) == 0


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("1.5", "-1.5", "prices.yaml:chips[0].reservation: -1.5 is too small; use 0"),
        ("1.5", ".inf", "chips[0].reservation: "),
        ("1.5", "cheap", "chips[0].reservation: 'cheap' is not a number; write a number"),
        ("generation: v6e, zones", "generation: v6, zones", "'v6' is no generation of TPU; use"),
        ("reservation", "reserved", "there is no such key; did you mean reservation?"),
        ("us-east5-b", "us-east5", "is no zone of Google Cloud"),
        ('"2026-10-01"', "yesterday", "date: 'yesterday' is no date; write one such as"),
        ("source: contract 7", "", "source: is missing; add source"),
    ],
)
def test_a_faulty_list_is_refused_with_the_way_out(tmp_path, old, new, told):
    with pytest.raises(ConfigError) as refused:
        own(tmp_path, OWN.replace(old, new, 1))
    assert told in str(refused.value)


def test_the_example_of_the_docs_is_such_a_list(tmp_path):
    text = (REPOSITORY / "docs/cost.md").read_text()
    [example] = re.findall(r"```yaml\n(# prices\.yaml.*?)```", text, re.DOTALL)
    prices = own(tmp_path, example)
    assert usd(prices.chip("v6e", "reservation", "us-east5-b")) == 1.49
    assert usd(prices.machine("n2-standard-8", "us-east5")) == pytest.approx(0.3496)


def test_a_list_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(UnreadableError, match=r"prices\.yaml"):
        own(tmp_path, "- 1\n")
