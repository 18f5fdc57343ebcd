"""What pods without TPU ask for."""

HEAD_CPUS, HEAD_MEMORY_GIB = 3, 12
"""Two such pods fit on the CPU pool's default machine, n2-standard-8."""
DATA_CPUS, DATA_MEMORY_GIB = 3, 12
