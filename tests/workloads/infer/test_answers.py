"""Rows in, rows out: with a computer that answers a prompt by what can be known of it by hand."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from workloads.infer.answers import Work, answer
from workloads.infer.prompts import Row
from workloads.settings import InferSettings

END = 2
WIDTHS = (4, 16)


class Echo:
    """Completes a prompt by itself and an end, scores it by its sum, and notes the seeds."""

    def __init__(self):
        self.seeds = {}

    def generate(self, batch, seeds):
        size = len(batch.lengths)
        tokens = np.full((size, WIDTHS[-1] + 1), 99, np.int32)
        for row, (prompt, length) in enumerate(zip(batch.tokens, batch.lengths, strict=True)):
            tokens[row, :length], tokens[row, length] = prompt[:length], END
        self.seeds |= {tuple(batch.tokens[i]): seeds[i] for i in range(len(batch.indices))}
        return tokens, batch.lengths + 1

    def score(self, batch):
        return -batch.tokens.sum(axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def work(tokenizer_json):
    def make(**changes):
        settings = InferSettings(prompts=("p",), max_sequence_length=16, **changes)
        tokenizer = Tokenizer.from_file(str(tokenizer_json))
        return Work(settings, Echo(), tokenizer, frozenset({END}), WIDTHS)

    return make


prompts = st.lists(
    st.tuples(st.lists(st.integers(10, 300), min_size=1, max_size=16), st.none())
    | st.tuples(st.just([]), st.just("the prompt is null")),
    min_size=1,
    max_size=40,
)


def rows_of(given_prompts):
    return [
        Row("f", i, f"id{i}", None if error else tokens)
        for i, (tokens, error) in enumerate(given_prompts)
    ]


@given(given_prompts=prompts, size=st.integers(1, 9))
def test_each_row_gets_its_own_completion_whatever_it_is_batched_with(work, given_prompts, size):
    table, totals = answer(rows_of(given_prompts), given_prompts, work(batch_size=size))
    assert table["id"].to_pylist() == [f"id{i}" for i in range(len(given_prompts))]
    assert table["row"].to_pylist() == [*range(len(given_prompts))]
    assert table["tokens"].to_pylist() == [
        None if error else [*tokens, END] for tokens, error in given_prompts
    ]
    assert table["error"].to_pylist() == [error for _, error in given_prompts]
    bad = sum(error is not None for _, error in given_prompts)
    assert totals.errors == ({"the prompt is null": bad} if bad else {})
    assert totals.rows == len(given_prompts)
    lengths = [len(tokens) for tokens, _ in given_prompts]
    assert totals.prompt_tokens == sum(lengths)
    assert totals.completion_tokens == sum(length + 1 for length in lengths if length)


@given(given_prompts=prompts, size=st.integers(1, 9))
def test_each_row_gets_its_own_score(work, given_prompts, size):
    table, _ = answer(rows_of(given_prompts), given_prompts, work(task="score", batch_size=size))
    assert table["log_likelihood"].to_pylist() == [
        None if error else -sum(tokens) for tokens, error in given_prompts
    ]
    assert table["scored_tokens"].to_pylist() == [
        None if error else len(tokens) - 1 for tokens, error in given_prompts
    ]


def test_the_text_is_that_of_the_tokens_without_the_one_that_ends_it(work, tokenizer_json):
    tokens = Tokenizer.from_file(str(tokenizer_json)).encode("naïve 🙂").ids
    table, _ = answer([Row("f", 0, 7, "")], [(tokens, None)], work(max_tokens=4))
    [row] = table.to_pylist()
    assert (row["text"], row["finish_reason"]) == ("naïve 🙂", "stop")
    assert (row["prompt_tokens"], row["completion_tokens"]) == (len(tokens), len(tokens) + 1)


def test_seeds_are_the_rows_own_and_change_with_the_settings(work):
    given_prompts = [([10 + i], None) for i in range(20)]
    seen = []
    for size, seed in ((3, 0), (8, 0), (8, 1)):
        made = work(batch_size=size, seed=seed)
        answer(rows_of(given_prompts), given_prompts, made)
        seen.append(made.computer.seeds)
    assert seen[0] == seen[1]
    assert len({int(seed) for seed in seen[0].values()}) == 20
    assert not {*seen[1].values()} & {*seen[2].values()}


@pytest.mark.parametrize(("id_", "kind"), [("x", pa.string()), (2**62, pa.int64()), (None, None)])
def test_ids_keep_their_type_and_are_left_out_where_there_are_none(work, id_, kind):
    table, _ = answer([Row("f", 0, id_, None)], [([], "the prompt is null")], work())
    assert ("id" in table.schema.names) == (kind is not None)
    if kind is not None:
        assert table.schema.field("id").type == kind
        assert table["id"].to_pylist() == [id_]
