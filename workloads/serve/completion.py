"""The words in which ingress and engine speak of a completion. Imports no JAX."""

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Sampling:
    """How one request's tokens are drawn."""

    max_tokens: int
    temperature: float = 1.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    """Draw from the fewest tokens whose probabilities reach this sum."""
    seed: int = 0
    """The same seed, prompt and settings draw the same tokens."""


@dataclass(frozen=True)
class Token:
    id: int
    finish_reason: FinishReason | None
    """Set on the last token: "stop" if it is an end-of-text token, "length" if no more may come."""


@dataclass(frozen=True)
class Delta:
    """A piece of a completion's text."""

    text: str
    tokens: int
    """Completion tokens so far, the one that ended it included."""
    finish_reason: FinishReason | None = None
