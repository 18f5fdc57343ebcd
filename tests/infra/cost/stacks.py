"""Stacks to price. What they cost is worked out by hand in the tests."""

from infra.cost.estimate import Estimate, Usage, estimate
from infra.cost.prices import PUBLIC, Prices
from tests.infra.gke.stacks import declared, stack

SLICE = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
SERVE = {"kind": "serve", "engine": "vllm", "model": {"hub": "Qwen/Qwen3-4B"}}
CHAT = {"name": "chat", "slice": "train", **SERVE}
DATA = {"name": "corpus", "kind": "data", "vocab_size": 2048, "sequence_length": 128}
TRAIN = {
    "name": "pretrain",
    "kind": "train",
    "slice": "train",
    "data": "corpus",
    "mesh": {"data": 16},
    "steps": 300,
    "global_batch": 32,
}


def of(*workloads, prices: Prices = PUBLIC, usage: Usage | None = None, cluster=None, **slice_):
    """The price of a stack with one slice."""
    team = {"name": "research", "cost_center": "ml"}
    config = stack(SLICE | slice_, workloads=[*workloads], cluster=cluster, team=team)
    return estimate(config, prices, usage or Usage())


def of_file(name: str) -> Estimate:
    return estimate(declared(name), PUBLIC, Usage())


def line(priced: Estimate, name: str):
    return next(one for one in (*priced.lines, *priced.upgrades) if one.name == name)
