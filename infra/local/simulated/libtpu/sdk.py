"""The part of libtpu's interface that Ray asks (ray.util.tpu, 2.60)."""

import os
import socket
from types import SimpleNamespace

HOST_EDGE = 2
"""A host of several is a square of 2 x 2 chips."""


class Chip:
    def __init__(self, index: int, place: tuple[int, int]) -> None:
        self._index, self._place = index, place

    def hostname(self) -> str:
        return socket.gethostname()

    def chip_index(self) -> int:
        return self._index

    def coordinates(self) -> tuple[int, int]:
        """Along the first size of the topology, and along the second."""
        return self._place


def get_chip_coordinates() -> list[Chip]:
    """Of this host. Hosts are numbered along the first size of the topology, as by libtpu."""
    across = int(os.environ["TPU_TOPOLOGY"].split("x")[0]) // HOST_EDGE
    row, column = divmod(int(os.environ["TPU_WORKER_ID"]), across)
    places = [
        (column * HOST_EDGE + x, row * HOST_EDGE + y)
        for y in range(HOST_EDGE)
        for x in range(HOST_EDGE)
    ]
    return [Chip(index, place) for index, place in enumerate(places)]


slice = SimpleNamespace(get_chip_coordinates=get_chip_coordinates)  # noqa: A001 - libtpu's name
