import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.train.ahead import ahead


@given(st.lists(st.integers()))
def test_all_come_in_their_order(items):
    assert list(ahead(items)) == items


def test_the_first_is_fetched_before_it_is_asked_for_and_no_other():
    fetched = []
    there = threading.Event()

    def items():
        for item in range(3):
            fetched.append(item)
            there.set()
            yield item

    coming = ahead(items())
    assert there.wait(10)
    assert next(coming) == 0
    assert fetched == [0]
    assert list(coming) == [1, 2]


def test_who_does_something_else_meanwhile_does_not_wait():
    done = threading.Event()

    def items():
        assert done.wait(10)
        yield "item"

    coming = ahead(items())
    done.set()  # never, if the call above had waited for the item
    assert list(coming) == ["item"]


def test_what_goes_wrong_is_raised_where_the_first_is_asked_for():
    def items():
        yield from ()
        raise OSError("no storage")

    coming = ahead(items())
    with pytest.raises(OSError, match="no storage"):
        next(coming)
