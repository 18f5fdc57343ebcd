"""Floating-point operations of a training step that the model itself asks for.

As counted in the appendix of the PaLM paper (arXiv 2204.02311): a multiplication and an addition
for each weight of a matrix and each score of the attention, once forward and twice backward. What
`remat` computes anew does not count, nor does what the causal mask saves: the figure says how much
of the chips' peak goes into the model, and is compared between runs and papers.
"""

from workloads.model.config import ModelConfig

_FORWARD_AND_BACKWARD = 3
_FROZEN = 2  # of a matrix that is not trained, no gradient is computed
_MULTIPLY_AND_ADD = 2


def model_flops(config: ModelConfig, tokens: int, length: int, *, frozen: bool = False) -> float:
    """Of a step over so many tokens, in sequences of `length`.

    `frozen`: whether adapters alone are trained, whose own share is too small to count.
    """
    width = config.attention_heads * config.head_dim
    shared = config.key_value_heads * config.head_dim
    attention = 2 * config.hidden_size * (width + shared)
    feed_forward = 3 * config.hidden_size * config.intermediate_size
    # Looking a token's row up is no arithmetic; the same table as the last layer is.
    weights = config.layers * (attention + feed_forward) + config.vocab_size * config.hidden_size
    scores = config.layers * 2 * width * length  # of queries and keys, and of them and the values
    passes = _FROZEN if frozen else _FORWARD_AND_BACKWARD
    each = passes * weights + _FORWARD_AND_BACKWARD * scores
    return float(_MULTIPLY_AND_ADD * each * tokens)
