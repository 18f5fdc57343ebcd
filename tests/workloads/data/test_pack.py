"""Packing against a packer of five lines, written here."""

from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from workloads.data import pack, sources, split, tokenizer

WORDS = [f"Document {i} says: " + "the slice has hosts. " * (i % 7 + 1) for i in range(40)]
LENGTH = 16
TRAINED = tokenizer.train(WORDS, 300).to_str()
VOCABULARY = tokenizer.for_documents(TRAINED).get_vocab_size()
LIMIT = split.KEYS // 4


def pack_into(folder, **changes):
    paths = []
    for i, text in enumerate(WORDS):
        path = folder / f"{i:02}.txt"
        path.write_text(text)
        paths.append(sources.Source(str(path), len(text)))
    how: dict[str, Any] = {
        "output": str(folder / "out"),
        "column": "text",
        "seed": 3,
        "threshold": LIMIT,
        "sequence_length": LENGTH,
        "tokenizer_json": TRAINED,
    }
    return pack.pack(0, tuple(paths), pack.Packing(**how | changes))


def expected(*, held_out):
    encoder = tokenizer.for_documents(TRAINED)
    stream = []
    for text in WORDS:
        if (split.key(text, 3) < LIMIT) == held_out:
            stream += [*encoder.encode(text).ids, 0]
    return stream


@pytest.mark.parametrize("side", ["train", "held_out"])
def test_documents_follow_one_another_ended_and_cut_into_rows(tmp_path, side):
    counts = pack_into(tmp_path)[side]
    stream = expected(held_out=side == "held_out")
    rows = len(stream) // (LENGTH + 1)
    written = pq.read_table(tmp_path / "out" / side / "part-00000.parquet")
    assert [*written["tokens"].to_pylist()] == [
        stream[i * (LENGTH + 1) : (i + 1) * (LENGTH + 1)] for i in range(rows)
    ]
    assert (counts.rows, counts.tokens) == (rows, len(stream))
    assert counts.left_out_tokens == len(stream) - rows * (LENGTH + 1)


def test_a_token_counts_as_a_target_but_not_where_it_opens_a_row(tmp_path):
    counts = pack_into(tmp_path)["train"]
    stream = expected(held_out=False)[: counts.rows * (LENGTH + 1)]
    targets = [token for i, token in enumerate(stream) if i % (LENGTH + 1)]
    assert counts.target_counts.tolist() == np.bincount(targets, minlength=VOCABULARY).tolist()


def test_rows_are_the_same_however_many_are_written_at_once(tmp_path, monkeypatch):
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    whole = pack_into(first)
    monkeypatch.setattr(pack, "ROWS_PER_GROUP", 4)
    monkeypatch.setattr(pack, "DOCUMENTS_AT_ONCE", 3)
    grouped = pack_into(second)
    parts = [f / "out" / "train" / "part-00000.parquet" for f in (first, second)]
    assert pq.read_table(parts[0]).equals(pq.read_table(parts[1]))
    assert pq.ParquetFile(parts[1]).metadata.row_group(0).num_rows == 4
    assert whole["train"].digest == grouped["train"].digest


def test_an_empty_document_leaves_no_trace(tmp_path):
    scan = pack.scan((sources.Source("pydoc_data.topics", 0),), "text", 0, 1.0)
    (tmp_path / "empty.txt").write_text("")
    empty = pack.scan((sources.Source(str(tmp_path / "empty.txt"), 0),), "text", 0, 1.0)
    assert (scan.documents, scan.empty, len(scan.sample)) == (79, 0, 79)
    assert (empty.documents, empty.empty, empty.sample) == (0, 1, [])


def test_a_folder_full_of_faults_is_told_by_its_first_few(tmp_path):
    (tmp_path / "bad.jsonl").write_text("no\n" * 100)
    scan = pack.scan((sources.Source(str(tmp_path / "bad.jsonl"), 0),), "text", 0, 1.0)
    assert len(scan.faults) == pack.MAX_FAULTS
