"""Another way to a server's answer, for tests of several engines and stacks."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from workloads.model.qwen3 import Qwen3

LENGTH = 64
"""Of prompt and answer, at most."""


def by_whole_sequences(model, prompt, tokens):
    """Greedy token ids: no cache, no batch, the whole sequence for each token."""
    logits, ids = nnx.jit(Qwen3.__call__), list(prompt)
    for _ in range(tokens):
        padded = np.zeros((2, LENGTH), np.int32)  # two rows: a mesh's data axis
        padded[:, : len(ids)] = ids
        ids.append(int(jnp.argmax(logits(model, padded)[0, len(ids) - 1])))
    return ids[len(prompt) :]
