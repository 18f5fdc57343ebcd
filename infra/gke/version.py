"""GKE's versions, and the least one that each feature needs.

Sources: GKE's documentation as of 2026-08, each feature's own page; where two pages disagree, the
later version.
"""

import re
from typing import NamedTuple

from infra.names import fault

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+)(?:-gke\.(\d+))?)?")


class GkeVersion(NamedTuple):
    """Ordered as GKE orders them."""

    major: int
    minor: int
    patch: int = 0
    build: int = 0

    @classmethod
    def parse(cls, text: str) -> "GkeVersion":
        found = _VERSION.fullmatch(text)
        if found is None:
            raise fault("is no version of GKE", 'write one such as "1.35.3-gke.1737000" or "1.35"')
        return cls(*(int(part) for part in found.groups() if part is not None))
