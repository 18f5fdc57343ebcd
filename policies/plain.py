"""Values of any kind, taken for what they should be, and for nothing if they are not."""

from typing import Any, cast


def mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
