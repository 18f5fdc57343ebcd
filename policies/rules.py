"""All rules: importing this module registers them."""

from policies import (
    capacity,
    changes,
    engines,
    hygiene,
    literals,
    pools,
    runs,
    security,
    slices,
    start,
)
from policies.rule import RULES

__all__ = [
    "RULES",
    "capacity",
    "changes",
    "engines",
    "hygiene",
    "literals",
    "pools",
    "runs",
    "security",
    "slices",
    "start",
]
