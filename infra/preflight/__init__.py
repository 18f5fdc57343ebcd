"""Which steps of a stack a TPU would run, what they need of it, and what would fit instead."""
