"""The first of something, fetched while its user still does something else."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The same items; the first is fetched from now on, in a thread that nothing waits for.

    What fetching it raises is raised where it is asked for.
    """
    iterator = iter(items)
    first: Future[list[Item]] = Future()

    def fetch() -> None:
        try:
            first.set_result(list(islice(iterator, 1)))
        except BaseException as error:  # noqa: BLE001 # it is told to whoever asks
            first.set_exception(error)

    # Not of an executor: the interpreter would wait for its threads at its end.
    Thread(target=fetch, name="first-batch", daemon=True).start()

    def through() -> Iterator[Item]:
        yield from first.result()
        yield from iterator

    return through()
