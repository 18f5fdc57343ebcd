"""What a simulated host has in place of libtpu: no library, and the places of its chips.

Simulated hosts find this package before the real one, which without a TPU knows no chip. Ray asks
it where the chips of a slice are before it cuts the slice into parts.
"""


def get_library_path() -> None:
    """JAX then looks for no TPU."""
