"""YAML as text: two Kubernetes objects hold a document of it in a string."""

from typing import Any

import yaml


def to_yaml(value: Any) -> str:
    """In the order of the keys."""
    return yaml.safe_dump(value, sort_keys=False)  # pyright: ignore[reportUnknownMemberType] - half-typed stubs
