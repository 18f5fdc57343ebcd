"""Where a secret may be in a stack file: encrypted, in the few keys named here, and nowhere else.

On disk Pulumi writes an encrypted value as {secure: ciphertext}. The engine decrypts it, and says
of a whole top-level key only that something in it was secret.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from infra.config.parse import is_list, is_mapping
from infra.errors import Problem

TOKEN = "hugging_face_token"  # noqa: S105 - the name of a key
IN_SERVE = (("api_key",), ("redis", "password"))
"""Keys of a serve workload, from the outermost."""

_PLACE = re.compile(rf"raytpu:({TOKEN}|workloads\[\d+\]\.(api_key|redis\.password))")


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
    """The faults of encrypted values in other places."""
    for place in places:
        if not _PLACE.fullmatch(place):
            yield Problem(
                place,
                f"is encrypted, and only {TOKEN}, and api_key and redis.password of a serve "
                "workload, may be",
                "write it in clear text",
            )


def in_clear_text(where: str) -> Problem:
    return Problem(
        where,
        "is in clear text, for all who can read the file",
        f"encrypt it: pulumi config set --secret --path '{where}'",
    )
