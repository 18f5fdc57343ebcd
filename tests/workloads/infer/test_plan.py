"""Rows to parts to batches to masks and back: none lost, none twice."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workloads.infer.plan import File, batches, parts

sizes = st.lists(st.integers(0, 40), max_size=12)
WIDTHS = (4, 8, 16)
prompts = st.lists(
    st.none() | st.lists(st.integers(1, 99), min_size=1, max_size=WIDTHS[-1]), max_size=40
)


def files(rows):
    return [File(f"f{i}", count, "") for i, count in enumerate(rows)]


@given(sizes, st.integers(1, 17))
@example([97], 16)  # a file that fills no whole number of parts
@example([1], 8)  # fewer rows than anything
@example([0, 0], 8)  # nothing at all
@example([5, 0, 3, 9, 1], 8)  # uneven files, an empty one among them
def test_each_row_of_each_file_is_in_one_part_and_in_order(rows, most):
    made = parts(files(rows), most)
    seen = [
        (piece.url, row)
        for part in made
        for piece in part.pieces
        for row in range(piece.first, piece.first + piece.rows)
    ]
    assert seen == [(f"f{i}", row) for i, count in enumerate(rows) for row in range(count)]
    assert [part.number for part in made] == list(range(len(made)))
    assert all(0 < part.rows <= most for part in made)


def test_parts_of_a_long_file_and_of_many_short_ones_by_hand():
    made = parts(files([1003, 2, 3, 4]), 500)
    assert [[(p.url, p.first, p.rows) for p in part.pieces] for part in made] == [
        [("f0", 0, 500)],
        [("f0", 500, 500)],
        [("f0", 1000, 3), ("f1", 0, 2), ("f2", 0, 3), ("f3", 0, 4)],
    ]


def test_ten_thousand_files_of_one_prompt_do_not_make_as_many_parts():
    assert len(parts(files([1] * 10_000), 1000)) == 10


@given(prompts, st.integers(1, 9))
def test_each_prompt_is_in_one_real_row_and_comes_back_unchanged(given_prompts, size):
    back = {}
    for batch in batches(given_prompts, size, WIDTHS):
        assert batch.tokens.shape in {(size, width) for width in WIDTHS}
        assert batch.mask.tolist() == [i < len(batch.indices) for i in range(size)]
        for row, index in enumerate(batch.indices):
            assert index not in back
            back[index] = batch.tokens[row, : batch.lengths[row]].tolist()
    assert back == {i: p for i, p in enumerate(given_prompts) if p is not None}


@given(prompts, st.integers(1, 9))
def test_padding_has_a_last_token_and_no_batch_is_padding_alone(given_prompts, size):
    for batch in batches(given_prompts, size, WIDTHS):
        assert batch.indices
        assert batch.lengths.min() >= 1
        assert not batch.tokens[len(batch.indices) :].any()


@pytest.mark.parametrize(
    ("rows", "size", "masks"),
    [
        (100, 16, [16, 16, 16, 16, 16, 16, 4]),
        (97, 16, [16, 16, 16, 16, 16, 16, 1]),
        (1, 2, [1]),
        (1003, 32, [32] * 31 + [11]),
        (0, 16, []),
    ],
)
def test_the_last_batch_is_padded_and_masked_never_dropped(rows, size, masks):
    made = batches([[7]] * rows, size, WIDTHS)
    assert [int(batch.mask.sum()) for batch in made] == masks


def test_short_prompts_go_together_so_that_little_is_padding():
    mixed = [[1] * length for length in (16, 1, 15, 2, 3, 14)]
    widths = Counter(batch.tokens.shape[1] for batch in batches(mixed, 3, WIDTHS))
    assert widths == {4: 1, 16: 1}
