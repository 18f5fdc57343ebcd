"""All rules: importing this module registers them."""

from policies import (
    budget,
    capacity,
    changes,
    control_plane,
    engines,
    hygiene,
    literals,
    pools,
    replaced,
    runs,
    security,
    slices,
    start,
)
from policies.rule import RULES

__all__ = [
    "RULES",
    "budget",
    "capacity",
    "changes",
    "control_plane",
    "engines",
    "hygiene",
    "literals",
    "pools",
    "replaced",
    "runs",
    "security",
    "slices",
    "start",
]
