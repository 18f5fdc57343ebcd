import pytest

from workloads.settings import InferSettings


@pytest.fixture
def settings():
    """Settings of a small job, with changes."""

    def make(**changes):
        plain = {
            "prompts": ("prompts.jsonl",),
            "batch_size": 8,
            "max_sequence_length": 48,
            "max_tokens": 16,
            "dtype": "float32",
        }
        return InferSettings(**{**plain, **changes})

    return make
