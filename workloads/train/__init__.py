"""The training job: a packed corpus to a checkpoint that any Qwen3 server loads."""
