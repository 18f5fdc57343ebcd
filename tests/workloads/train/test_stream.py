"""The order of rows, and that hosts and restarts together see it as one stream."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.data.corpus import Corpus, Part, Split
from workloads.train.stream import PADDING, Batches, Block, Order, Reader, blocks

CARRY = Batches(global_batch=2, hosts=1)

lengths = st.lists(st.integers(1, 30), min_size=1, max_size=5)


def split_of(rows):
    parts = tuple(Part(file=f"train/{i}.parquet", rows=n) for i, n in enumerate(rows))
    return Split(
        documents=1, text_bytes=1, tokens=1, rows=sum(rows), left_out_tokens=0, parts=parts
    )


def places(stretches):
    return [(s.epoch, s.file, s.group, i) for s in stretches for i in range(s.first, s.last)]


def order_of(rows, group, seed, epoch_rows=None):
    return Order(split_of(rows), group, seed, sum(rows) if epoch_rows is None else epoch_rows)


@given(lengths, st.integers(1, 7), st.integers(0, 9), st.integers(0, 200), st.integers(0, 200))
def test_any_part_of_the_stream_is_that_part_of_the_whole(rows, group, seed, position, count):
    order = order_of(rows, group, seed)
    whole = places(order.stretches(0, position + count))
    assert places(order.stretches(position, count)) == whole[position:]


@given(lengths, st.integers(1, 7), st.none() | st.integers(0, 9), st.integers(1, 3))
def test_every_epoch_has_every_row_once(rows, group, seed, epochs):
    seen = Counter(places(order_of(rows, group, seed).stretches(0, epochs * sum(rows))))
    expected = {
        (epoch, f"train/{i}.parquet", row // group, row % group)
        for epoch in range(epochs)
        for i, n in enumerate(rows)
        for row in range(n)
    }
    assert set(seen) == expected
    assert set(seen.values()) == {1}


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 700), st.integers(1, 700))
def test_a_resumed_run_gets_the_very_steps_it_would_have_had(host_rows, hosts, first, more):
    batches = Batches(global_batch=host_rows * hosts * 8, hosts=hosts)
    last = first + more
    made = blocks(batches, range(first, last))
    for host in range(hosts):
        assert {block.host for block in made[host::hosts]} == {host}  # Ray hands them out in turn
        assert [step for block in made[host::hosts] for step in block.steps] == [
            *range(first, last)
        ]
    assert max(len(block.steps) for block in made) * batches.host_batch <= 1024


@pytest.fixture
def corpus(tmp_path):
    """Rows [n, n, n] for n from 0 on, in two files of several row groups."""
    rows = [7, 4]
    numbers = iter(np.split(np.arange(11), [7]))
    (tmp_path / "train").mkdir()
    for i, _ in enumerate(rows):
        values = pa.array(np.repeat(next(numbers), 3).astype(np.int32))
        table = pa.table({"tokens": pa.FixedSizeListArray.from_arrays(values, 3)})
        pq.write_table(table, tmp_path / "train" / f"{i}.parquet", row_group_size=3)
    split = split_of(rows)
    return Corpus(
        digest=str(tmp_path),
        settings_digest="",
        vocab_size=300,
        sequence_length=2,
        rows_per_group=3,
        train=split,
        held_out=split,
        bytes_per_token=1,
        unigram_entropy=1,
        held_out_entropy=1,
    )


@pytest.mark.parametrize("ragged", ["carry", "drop", "pad"])
def test_a_step_has_the_next_rows_of_the_stream_on_however_many_hosts(tmp_path, corpus, ragged):
    def batch(hosts, step):
        batches = Batches(12, hosts, ragged)
        if ragged == "drop":
            batches = replace(batches, global_batch=6)
        reader = Reader(str(tmp_path), corpus, corpus.train, 5, batches)
        parts = [reader.rows(Block(range(step, step + 1), host)) for host in range(hosts)]
        return np.concatenate(parts)[:, 0].tolist()

    for step in range(5):
        assert batch(1, step) == batch(2, step) == batch(3, step) == batch(6, step)
    # 11 rows: each epoch has them all before the next begins, as far as its batches take them.
    places = [row for step in range(11) for row in batch(3, step)]
    size = {"carry": 11, "drop": 6, "pad": 12}[ragged]
    epochs = [places[i : i + size] for i in range(0, len(places) - size, size)]
    whole = {"carry": range(11), "drop": None, "pad": [PADDING, *range(11)]}[ragged]
    for epoch in epochs:
        assert len(set(epoch)) == size
        assert whole is None or sorted(epoch) == [*whole]


def test_rows_are_read_whole_and_shuffled_anew_each_epoch(tmp_path, corpus):
    reader = Reader(str(tmp_path), corpus, corpus.train, 5, CARRY)
    first, second = np.split(reader.rows(Block(range(11), 0)), 2)
    assert first.dtype == np.int32
    assert (first == first[:, :1]).all()
    assert sorted(first[:, 0]) == sorted(second[:, 0]) == list(range(11))
    assert first[:, 0].tolist() != second[:, 0].tolist()
    other = Reader(str(tmp_path), corpus, corpus.train, 6, CARRY).rows(Block(range(6), 0))[:11]
    assert first[:, 0].tolist() != other[:, 0].tolist()


def test_without_a_seed_rows_come_as_they_were_written(tmp_path, corpus):
    reader = Reader(str(tmp_path), corpus, corpus.train, None, CARRY)
    assert reader.rows(Block(range(1, 5), 0))[:, 0].tolist() == list(range(2, 10))


@given(lengths, st.integers(1, 7), st.integers(1, 40), st.integers(1, 3))
def test_drop_ends_each_epoch_with_its_last_full_batch(rows, group, batch, epochs):
    size = Batches(batch, 1, "drop").epoch_rows(sum(rows))
    assert (size, sum(rows) - size) == (sum(rows) // batch * batch, sum(rows) % batch)
    if size == 0:
        return  # refused before it is read
    order = order_of(rows, group, 3, size)
    whole = places(order_of(rows, group, 3).stretches(0, epochs * sum(rows)))
    expected = [row for e in range(epochs) for row in [one for one in whole if one[0] == e][:size]]
    assert places(order.stretches(0, epochs * size)) == expected


@given(lengths, st.integers(1, 7), st.integers(1, 40), st.integers(0, 90), st.integers(0, 90))
def test_pad_fills_the_last_batch_of_each_epoch_and_loses_no_row(rows, group, batch, at, count):
    total = sum(rows)
    size = Batches(batch, 1, "pad").epoch_rows(total)
    assert size % batch == 0
    assert 0 <= size - total < batch
    order = order_of(rows, group, 3, size)
    filled = {s.position + i for s in order.stretches(at, count) for i in range(s.last - s.first)}
    assert filled == {place for place in range(at, at + count) if place % size < total}


def test_padding_is_no_token_and_stands_where_no_row_does(tmp_path, corpus):
    padded = Batches(global_batch=4, hosts=1, ragged="pad")
    rows = Reader(str(tmp_path), corpus, corpus.train, None, padded).rows(Block(range(2, 4), 0))
    assert rows[:, 0].tolist() == [8, 9, 10, PADDING, 0, 1, 2, 3]
    assert (rows == rows[:, :1]).all()


@pytest.mark.parametrize(
    ("ragged", "steps", "told"),
    [
        ("carry", 10, "80 of 1,003 rows are seen, each once; 923 are left out"),
        ("carry", 250, "1.99 epochs of 1,003 rows; none is left out"),
        ("raise", 250, "1.99 epochs of 1,003 rows; none is left out"),
        ("drop", 250, "2.00 epochs of 1,003 rows; each leaves out 3, which fill no batch"),
        ("pad", 252, "2.00 epochs of 1,003 rows; each is filled up by 5 rows that count for"),
    ],
)
def test_a_run_says_what_it_leaves_out(ragged, steps, told):
    assert Batches(8, 4, ragged).told(1003, steps).startswith(told)
