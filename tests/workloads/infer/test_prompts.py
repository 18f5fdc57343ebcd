import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from workloads.infer.plan import Piece
from workloads.infer.prompts import Columns, Limits, Reader, Row, encode

COLUMNS = Columns("prompt", "id")
ROWS = 23


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    records = [{"id": 100 + i, "prompt": f"p{i}", "other": "x"} for i in range(ROWS)]
    lines = "\n\n".join(json.dumps(record) for record in records)  # a blank line is no row
    (folder / "a.jsonl").write_text(lines)
    pq.write_table(pa.Table.from_pylist(records), folder / "a.parquet", row_group_size=5)
    return [str(folder / "a.jsonl"), str(folder / "a.parquet")]


@given(cuts=st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(1, ROWS)), max_size=6))
def test_any_piece_in_any_order_is_those_rows(files, cuts):
    reader = Reader(COLUMNS)
    for url in files:
        for first, count in cuts:
            stop = min(first + count, ROWS)
            found = reader.rows([Piece(url, first, stop - first)])
            assert found == [Row(url, i, 100 + i, f"p{i}") for i in range(first, stop)]


def test_pieces_of_several_files_follow_one_another(files):
    found = Reader(COLUMNS).rows([Piece(files[0], 20, 3), Piece(files[1], 0, 2)])
    assert [(row.file, row.row) for row in found] == [
        *((files[0], i) for i in (20, 21, 22)),
        *((files[1], i) for i in (0, 1)),
    ]


def test_a_file_that_became_shorter_is_no_short_part(files):
    with pytest.raises(EOFError, match=r"a.jsonl: ends before row 30"):
        Reader(COLUMNS).rows([Piece(files[0], 20, 10)])


def judged(tokenizer_json, *prompts, longest=8):
    rows = [Row("f", i, None, prompt) for i, prompt in enumerate(prompts)]
    return encode(rows, Tokenizer.from_file(str(tokenizer_json)), Limits(longest, 320))


def test_text_is_tokenized_and_tokens_are_taken_as_they_are(tokenizer_json):
    text = "The slice"
    [(tokens, fault), given] = judged(tokenizer_json, text, [5, 300])
    assert fault is None
    assert Tokenizer.from_file(str(tokenizer_json)).decode(tokens) == text
    assert given == ([5, 300], None)


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        (None, "the prompt is null"),
        ("", "the prompt is empty"),
        ([], "the prompt is empty"),
        ("\ud83d", "the prompt is no valid Unicode"),
        ([1] * 9, "the prompt is longer than 8 tokens"),
        ("word " * 99, "the prompt is longer than 8 tokens"),
        ([320], "a token of the prompt is none of the model's 320"),
        ([-1], "a token of the prompt is none of the model's 320"),
        ([1, None], "a token of the prompt is none of the model's 320"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_its_rows_error_and_no_others(tokenizer_json, prompt, error):
    before, (_, found), after = judged(tokenizer_json, [1] * 8, prompt, "ok")
    assert found == error
    assert (before[1], after[1]) == (None, None)
