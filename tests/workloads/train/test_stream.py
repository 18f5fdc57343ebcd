"""The order of rows, and that hosts and restarts together see it as one stream."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.data.corpus import Corpus, Part, Split
from workloads.train.stream import Batches, Order, Reader, blocks

lengths = st.lists(st.integers(1, 30), min_size=1, max_size=5)


def split_of(rows):
    parts = tuple(Part(file=f"train/{i}.parquet", rows=n) for i, n in enumerate(rows))
    return Split(
        documents=1, text_bytes=1, tokens=1, rows=sum(rows), left_out_tokens=0, parts=parts
    )


def places(stretches):
    return [(s.epoch, s.file, s.group, i) for s in stretches for i in range(s.first, s.last)]


@given(lengths, st.integers(1, 7), st.integers(0, 9), st.integers(0, 200), st.integers(0, 200))
def test_any_part_of_the_stream_is_that_part_of_the_whole(rows, group, seed, position, count):
    order = Order(split_of(rows), group, seed)
    whole = places(order.stretches(0, position + count))
    assert places(order.stretches(position, count)) == whole[position:]


@given(lengths, st.integers(1, 7), st.none() | st.integers(0, 9), st.integers(1, 3))
def test_every_epoch_has_every_row_once(rows, group, seed, epochs):
    seen = Counter(places(Order(split_of(rows), group, seed).stretches(0, epochs * sum(rows))))
    expected = {
        (epoch, f"train/{i}.parquet", row // group, row % group)
        for epoch in range(epochs)
        for i, n in enumerate(rows)
        for row in range(n)
    }
    assert set(seen) == expected
    assert set(seen.values()) == {1}


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 700), st.integers(1, 700))
def test_a_resumed_run_gets_the_very_rows_it_would_have_had(host_rows, hosts, first, more):
    batches = Batches(global_batch=host_rows * hosts * 8, hosts=hosts)
    last = first + more

    def by_host_and_step(steps):
        seen = {}
        for i, block in enumerate(blocks(batches, steps)):
            for row in range(block.rows):
                step = block.step + row // batches.host_batch
                place = block.position + row
                seen.setdefault((i % hosts, step), []).append(place)
        return seen

    whole = by_host_and_step(range(last))
    resumed = by_host_and_step(range(first, last))
    assert resumed == {key: rows for key, rows in whole.items() if key[1] >= first}
    assert {len(rows) for rows in whole.values()} == {batches.host_batch}
    assert sorted(place for rows in whole.values() for place in rows) == list(
        range(last * batches.global_batch)
    )


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


def test_rows_are_read_whole_and_shuffled_anew_each_epoch(tmp_path, corpus):
    reader = Reader(str(tmp_path), corpus, corpus.train, 5)
    first, second = np.split(reader.rows(0, 22), 2)
    assert first.dtype == np.int32
    assert (first == first[:, :1]).all()
    assert sorted(first[:, 0]) == sorted(second[:, 0]) == list(range(11))
    assert first[:, 0].tolist() != second[:, 0].tolist()
    other = Reader(str(tmp_path), corpus, corpus.train, 6).rows(0, 11)
    assert first[:, 0].tolist() != other[:, 0].tolist()


def test_without_a_seed_rows_come_as_they_were_written(tmp_path, corpus):
    reader = Reader(str(tmp_path), corpus, corpus.train, None)
    assert reader.rows(2, 9)[:, 0].tolist() == list(range(2, 11))
    assert reader.rows(11, 0).shape == (0, 3)
