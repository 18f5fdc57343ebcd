"""What a file of prompts may hold, and what is refused: where, what, the way out."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.data.sources import Source
from workloads.infer.prompts import Columns
from workloads.infer.scan import MAX_FAULTS, id_faults, scan

COLUMNS = Columns("prompt", "id")
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def jsonl(folder, *records, name="a.jsonl"):
    lines = (r if isinstance(r, str) else json.dumps(r) for r in records)
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return Source(str(path), 0)


def parquet(folder, **columns):
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return Source(str(folder / "a.parquet"), 0)


def fault(source, columns=COLUMNS):
    [found] = scan(source, columns).faults
    return found.removeprefix(source.url)


def test_text_nulls_and_token_lists_of_any_lengths_are_prompts(tmp_path):
    records = [{"id": i, "prompt": p} for i, p in enumerate(["one", None, [1, 2, 3], [], ""])]
    found = scan(jsonl(tmp_path, *records, "", "  "), COLUMNS)
    assert (found.rows, found.faults, found.id_kinds) == (5, [], {"number"})


@pytest.mark.parametrize(
    "prompts",
    [
        pa.array(["a", None]),
        pa.array(["a", "b"], pa.large_string()),
        pa.array(["a", "a"]).dictionary_encode(),
        pa.array([[1], [2, 3]], pa.list_(pa.int64())),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
        pa.nulls(2),
    ],
)
def test_parquets_ways_to_hold_text_and_tokens_are_prompts(tmp_path, prompts):
    found = scan(parquet(tmp_path, id=["x", "y"], prompt=prompts), COLUMNS)
    assert (found.rows, found.faults, found.id_kinds) == (2, [], {"text"})


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("[1]", ":1: not a JSON object; one a line is expected"),
        ('{"id": 1', ":1: not JSON (Expecting ',' delimiter); one JSON object a line is expected"),
        ({"id": 1, "text": "a"}, ":1: no column 'prompt'; set prompt_column to one of: id, text"),
        ({"id": 1, "prompt": 3.5}, ":1: column 'prompt' holds float, neither text nor a list of"),
        ({"id": 1, "prompt": ["a"]}, ":1: column 'prompt' holds list, neither text nor a list of"),
        ({"id": 1, "prompt": [True]}, ":1: column 'prompt' holds list, neither text nor a list"),
        ({"id": 1, "prompt": {"role": "user"}}, ":1: column 'prompt' holds dict, neither"),
        ({"prompt": "a"}, ":1: no column 'id'; set id_column to one of: prompt; null for none"),
        ({"id": None, "prompt": "a"}, ":1: id null is neither text nor a whole number of 64 bits"),
        ({"id": 2**63, "prompt": "a"}, ":1: id 9223372036854775808 is neither text nor a whole"),
        ({"id": True, "prompt": "a"}, ":1: id true is neither text nor a whole number"),
        ({"id": "\ud800", "prompt": "a"}, ':1: id "\\ud800" is neither text nor a whole number'),
    ],
)
def test_a_record_that_is_no_prompt_with_an_id_is_a_fault(tmp_path, record, words):
    assert fault(jsonl(tmp_path, record)).startswith(words)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"prompt": pa.array([1.5])}, "column 'prompt' holds double, neither text nor a list of"),
        ({"prompt": pa.array([b"x"])}, "column 'prompt' holds images or other bytes (binary)"),
        (
            {"prompt": pa.array([{"bytes": b"x", "path": "a.png"}], IMAGE)},
            "column 'prompt' holds images or other bytes (struct<bytes: binary, path: string>)",
        ),
        ({"prompt": pa.array([[1.5]])}, "column 'prompt' holds list<element: double>"),
        ({"text": ["a"]}, "no column 'prompt'; set prompt_column to one of: id, text"),
        ({"prompt": ["a"], "id": [1.5]}, "column 'id' holds double, neither text nor a whole"),
        ({"prompt": ["a"], "id": pa.array([1], pa.uint64())}, "column 'id' holds uint64"),
        ({"prompt": ["a"], "id": pa.array([None], pa.int64())}, "1 rows have no 'id'; give each"),
    ],
)
def test_a_parquet_column_of_another_type_is_a_fault(tmp_path, columns, words):
    assert fault(parquet(tmp_path, **{"id": ["x"], **columns})).startswith(f": {words}")


def test_files_that_cannot_be_read_are_told_by_their_names(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    assert "cannot be read" in fault(Source(str(tmp_path / "bad.parquet"), 0))
    (tmp_path / "bad.jsonl").write_bytes(b'{"prompt": "\xff"}')
    assert "is not UTF-8 text" in fault(Source(str(tmp_path / "bad.jsonl"), 0))
    assert "cannot be read" in fault(Source(str(tmp_path / "none.jsonl"), 0))


def test_ids_are_all_text_or_all_numbers(tmp_path):
    records = ({"id": 1, "prompt": "a"}, {"id": "1", "prompt": "a"})
    both = [
        scan(jsonl(tmp_path, record, name=f"{i}.jsonl"), COLUMNS)
        for i, record in enumerate(records)
    ]
    numbers, texts = id_faults(both, COLUMNS)
    assert numbers.endswith("0.jsonl: column 'id' holds numbers; write all ids as text")
    assert texts.endswith("1.jsonl: column 'id' holds texts; write all ids as text")
    assert not [*id_faults(both[:1], COLUMNS)]
    mixed = scan(jsonl(tmp_path, *records), COLUMNS)
    assert next(id_faults([mixed], COLUMNS)).endswith(
        "holds numbers and texts; write all ids as text"
    )


def test_without_a_column_of_ids_none_is_asked_for(tmp_path):
    assert not scan(jsonl(tmp_path, {"prompt": "a"}), Columns("prompt", None)).faults
    assert not scan(parquet(tmp_path, prompt=["a"]), Columns("prompt", None)).faults


def test_a_file_full_of_faults_is_told_by_its_first_few(tmp_path):
    assert len(scan(jsonl(tmp_path, *["no"] * 100), COLUMNS).faults) == MAX_FAULTS


def test_the_digest_is_of_the_content(tmp_path):
    def digest(text):
        return scan(jsonl(tmp_path, {"id": 1, "prompt": text}), COLUMNS).digest

    assert digest("a") == digest("a") != digest("b")
