"""What a step needs of a TPU, found by compiling it without one."""
