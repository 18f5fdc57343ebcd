import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.data import sources
from workloads.data.sources import Document, Fault, Null, Source
from workloads.errors import UserError


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read(url, column="text"):
    return list(sources.read(Source(url, 0), column))


def test_no_name_means_the_text_that_python_brings_along():
    from pydoc_data.topics import topics

    (built_in,) = sources.find(())
    assert read(built_in.url) == [Document(topics[name]) for name in sorted(topics)]


def test_files_folders_and_globs_give_each_file_once_in_the_order_of_paths(tmp_path):
    b, a = write(tmp_path / "b.txt", "b"), write(tmp_path / "deep" / "a.jsonl", "")
    write(tmp_path / "deep" / "README.md", "not a source")
    found = sources.find((b, str(tmp_path), str(tmp_path / "*.txt")))
    assert [source.url for source in found] == [b, a]
    assert [source.size_bytes for source in found] == [1, 0]


def test_every_name_that_leads_nowhere_is_told_in_one_go(tmp_path):
    names = (
        str(tmp_path / "missing.txt"),
        str(tmp_path / "*.parquet"),
        write(tmp_path / "page.html", "x"),
        str(tmp_path),
    )
    with pytest.raises(UserError) as refusal:
        sources.find(names)
    missing, pattern, suffix, folder = refusal.value.faults
    assert names[0] in missing
    assert "no such file" in missing
    assert names[1] in pattern
    assert "matches no file" in pattern
    assert names[2] in suffix
    assert "use one of .txt, .jsonl, .parquet" in suffix
    assert names[3] in folder
    assert "has no .txt or .jsonl or .parquet file" in folder


def test_a_short_text_is_one_document_and_nothing_of_it_is_cleaned(tmp_path):
    text = "\ufeff one\r\n\r\n\n two  \t"
    assert read(write(tmp_path / "a.TXT", text)) == [Document(text)]


@given(st.lists(st.text(alphabet="ab \n", min_size=1, max_size=50_000), max_size=8))
def test_a_long_text_is_cut_at_blank_lines_and_no_character_is_lost(parts):
    text = "\n\n".join(parts)
    cut = list(sources.cut(text))
    assert "".join(cut) == text
    for part in cut[:-1]:
        assert len(part) > sources.LONG_TEXT_CHARS
        assert part.endswith("\n\n")


def test_a_book_in_one_file_gives_documents_to_hold_out(tmp_path):
    book = ("x" * 999 + "\n\n") * 200
    assert len(read(write(tmp_path / "book.txt", book))) == 4


def test_records_without_text_are_nulls_and_no_faults(tmp_path):
    lines = [json.dumps({"text": text}) for text in ("one", None, "")]
    expected = [Document("one"), Null(), Document("")]
    assert read(write(tmp_path / "a.jsonl", "\n".join(lines) + "\n\n")) == expected
    table = pa.table({"text": ["one", None, ""], "other": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(str(tmp_path / "a.parquet")) == expected


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"fine \xff\xfe", "byte 5 is not UTF-8 text"),
        ("b.txt", b"fine\x00", "holds NUL bytes"),
        ("c.jsonl", b'{"text": "a"}\n{"text": ', "c.jsonl:2: not JSON"),
        ("d.jsonl", b'{"body": "a"}', "no column 'text'; set text_column to one of: body"),
        ("e.jsonl", b'{"text": 3}', "e.jsonl:1: column 'text' holds int, not text"),
        ("f.jsonl", b'["text"]', "f.jsonl:1: not a JSON object"),
        ("g.jsonl", b'{"text": "\xff"}', "is not UTF-8 text"),
        ("h.parquet", b"PAR1 no", "h.parquet: cannot be read"),
    ],
)
def test_what_is_not_text_is_a_fault_that_names_the_file(tmp_path, name, content, words):
    url = write(tmp_path / name, content)
    (fault,) = [item for item in read(url) if isinstance(item, Fault)]
    assert url in fault.message
    assert words in fault.message


def test_a_parquet_column_that_is_missing_or_no_text_is_a_fault(tmp_path):
    url = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [1, 2]}), url)
    assert read(url) == [Fault(f"{url}: no column 'text'; set text_column to one of: n")]
    assert read(url, "n") == [Fault(f"{url}: column 'n' holds int64, not text; set text_column")]


@given(st.lists(st.integers(0, 100)), st.integers(1, 50))
def test_shards_hold_every_file_once_in_order_and_only_a_big_file_exceeds_one(sizes, shard_bytes):
    files = [Source(str(i), size) for i, size in enumerate(sizes)]
    shards = sources.shards(files, shard_bytes)
    assert [file for shard in shards for file in shard] == files
    for shard in shards:
        assert len(shard) == 1 or sum(file.size_bytes for file in shard) <= shard_bytes
