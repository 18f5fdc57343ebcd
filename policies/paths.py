"""Places as users write them, read back."""

import re

from policies.view import Path

_PART = re.compile(r"\[(\d{1,9})\]|([^.\[\]]+)")


def parsed(text: str) -> Path:
    """The path of spec.priorities[0].tpu. A last part such as `specific[]` stands for its list."""
    parts = (match.groups() for match in _PART.finditer(text))
    return tuple(int(index) if index is not None else name for index, name in parts)
