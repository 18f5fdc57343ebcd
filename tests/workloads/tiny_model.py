"""Sizes of a model for tests of whole runs, on any kind of cluster."""

TINY_MODEL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "layers": 1,
    "attention_heads": 2,
    "key_value_heads": 2,
    "head_dim": 16,
}
"""Its compilation is what a test waits for, and no larger one would tell more."""
