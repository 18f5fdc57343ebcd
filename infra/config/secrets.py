"""Where a secret may be in a stack file: a serve workload's api_key, encrypted, and nowhere else.

On disk Pulumi writes an encrypted value as {secure: ciphertext}. The engine decrypts it, and says
of a whole top-level key only that something in it was secret.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from infra.config.parse import is_list, is_mapping
from infra.errors import Problem

_API_KEY = re.compile(r"raytpu:workloads\[\d+\]\.api_key")


def is_sealed(value: Any) -> TypeGuard[dict[str, str]]:
    return is_mapping(value) and set(value) == {"secure"} and isinstance(value["secure"], str)


def sealed_places(value: Any, where: str) -> Iterator[str]:
    """Where in a value of a stack file encrypted values are; `where` is the place of the value."""
    if is_sealed(value):
        yield where
    elif is_mapping(value):
        for key, part in value.items():
            yield from sealed_places(part, f"{where}.{key}")
    elif is_list(value):
        for index, part in enumerate(value):
            yield from sealed_places(part, f"{where}[{index}]")


def misplaced(places: Iterable[str]) -> Iterator[Problem]:
    """The faults of encrypted values that are no api_key."""
    for place in places:
        if not _API_KEY.fullmatch(place):
            yield Problem(
                place,
                "is encrypted, and only the api_key of a serve workload may be",
                "write it in clear text",
            )


def in_clear_text(where: str) -> Problem:
    return Problem(
        where,
        "is in clear text, for all who can read the file",
        f"encrypt it: pulumi config set --secret --path '{where}'",
    )
