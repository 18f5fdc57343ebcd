"""The data job on a real Ray of one node."""

import json
import os
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray
from tokenizers import Tokenizer
from tokenizers.models import BPE

from workloads.data import corpus, pack, prepare
from workloads.data.main import main
from workloads.errors import UserError
from workloads.settings import DataSettings

pytestmark = pytest.mark.cluster


def small(**changes):
    settings: dict[str, Any] = {"vocab_size": 400, "sequence_length": 32, **changes}
    return DataSettings(**settings)


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    # Ray's sockets lie in its folder, and a socket's path is at most 107 bytes long.
    folder = tmp_path_factory.getbasetemp().parent / "rayd"
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        _temp_dir=str(folder),
        logging_level=30,
    )
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def write_documents(folder):
    folder.mkdir()
    for name, text in topics.items():
        (folder / f"{name}.txt").write_text(text[:600])
    return str(folder)


def rows(output, side):
    parts = sorted((output / side).glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part)["tokens"].to_pylist()]


def test_the_default_corpus_is_packed_whole_and_its_manifest_is_true(tmp_path):
    result = prepare.prepare(DataSettings(vocab_size=1024), str(tmp_path))
    assert result == corpus.load(str(tmp_path))
    assert result.train.documents + result.held_out.documents == 79
    assert result.train.text_bytes + result.held_out.text_bytes == 466_117
    for side, counts in (("train", result.train), ("held_out", result.held_out)):
        written = rows(tmp_path, side)
        assert len(written) == counts.rows
        assert {len(row) for row in written} == {129}
        assert min(map(min, written)) >= 0
        assert max(map(max, written)) < 1024
        assert counts.tokens == counts.rows * 129 + counts.left_out_tokens
    assert 2 < result.bytes_per_token < 5
    assert result.held_out_entropy < result.unigram_entropy


def test_the_same_text_gives_the_same_corpus_in_any_number_of_tasks(tmp_path, monkeypatch):
    source = write_documents(tmp_path / "text")
    settings = small(sources=(source,))
    one = prepare.prepare(settings, str(tmp_path / "one"), shard_bytes=4000)
    in_one_block = partial(ray.data.range, override_num_blocks=1)
    monkeypatch.setattr(ray.data, "range", lambda count, **_: in_one_block(count))
    other = prepare.prepare(settings, str(tmp_path / "other"), shard_bytes=4000)
    assert len(one.train.parts) > 2
    assert one == other
    for side in pack.SIDES:
        assert rows(tmp_path / "one", side) == rows(tmp_path / "other", side)


def test_a_rerun_replaces_all_of_the_corpus_that_was_there(tmp_path):
    source = write_documents(tmp_path / "text")
    many = prepare.prepare(small(sources=(source,)), str(tmp_path / "out"), shard_bytes=4000)
    few = prepare.prepare(small(sources=(source,)), str(tmp_path / "out"))
    assert len(many.train.parts) > len(few.train.parts) == 1
    assert len(rows(tmp_path / "out", "train")) == few.train.rows


@pytest.mark.parametrize(
    ("content", "settings", "words"),
    [
        ({"a.txt": "", "b.txt": ""}, {}, "hold no text"),
        ({"a.txt": "same", "b.txt": "same"}, {}, "one distinct document"),
        ({"a.txt": "one", "b.txt": "two"}, {}, "vocab_size: 400 tokens are more"),
        (
            {"a.txt": "abcdefgh " * 4, "b.txt": "two " * 4},
            {"vocab_size": 300, "sequence_length": 4096},
            "vocab_size: 300 tokens are more",
        ),
        ({"a.txt": b"\xff\xfe", "b.jsonl": b"{"}, {}, "a.txt: byte 0 is not UTF-8"),
    ],
)
def test_text_that_cannot_be_used_is_refused(tmp_path, content, settings, words):
    for name, text in content.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as refusal:
        prepare.prepare(small(sources=(str(tmp_path),), **settings), str(tmp_path / "out"))
    assert words in str(refusal.value)
    assert not (tmp_path / "out").exists()


def test_too_little_text_for_one_row_is_refused_for_each_side(tmp_path):
    source = write_documents(tmp_path / "text")
    settings = small(sources=(source,), sequence_length=100_000)
    with pytest.raises(UserError) as refusal:
        prepare.prepare(settings, str(tmp_path / "out"))
    assert len(refusal.value.faults) == 2
    assert "a row takes 100001 tokens and the held-out text has" in str(refusal.value)
    assert not (tmp_path / "out" / "corpus.json").exists()


def test_the_job_ends_with_one_line_for_each_fault_and_code_1(
    tmp_path, cluster, capsys, monkeypatch
):
    monkeypatch.setitem(os.environ, "RAY_ADDRESS", cluster)
    monkeypatch.setattr("workloads.entrypoint.connect", lambda: None)  # the fixture is connected
    names = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    arguments = ["--settings", json.dumps({"sources": names}), "--output", str(tmp_path / "out")]
    assert main(arguments) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": no such file")[0] for line in lines] == [
        f"raytpu | error: {name}" for name in names
    ]


def test_text_is_packed_with_the_tokenizer_that_is_given(tmp_path, tokenizer_json):
    """Of another text, and of 320 tokens: the settings' vocab_size says nothing then."""
    source, out = write_documents(tmp_path / "text"), tmp_path / "out"
    made = prepare.prepare(small(sources=(source,)), str(out), str(tokenizer_json.parent))
    assert (out / "tokenizer.json").read_bytes() == tokenizer_json.read_bytes()
    assert made.vocab_size == 320
    given = Tokenizer.from_file(str(tokenizer_json))
    text = given.decode([token for row in rows(out, "train") for token in row])
    assert len(text) > 1000
    assert text[:200] in "".join(path.read_text() for path in Path(source).iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "tokenizer.json: no such file; name a folder that has one"),
        ("{}", "tokenizer.json: cannot be read"),
        (Tokenizer(BPE(vocab={"a": 0}, merges=[])).to_str(), "has no token <|endoftext|>"),
    ],
)
def test_a_tokenizer_that_cannot_pack_is_refused_before_the_old_corpus_goes(
    tmp_path, content, words
):
    (tmp_path / "corpus.json").write_text("old")
    (tmp_path / "model").mkdir()
    if content is not None:
        (tmp_path / "model" / "tokenizer.json").write_text(content)
    with pytest.raises(UserError) as refusal:
        prepare.prepare(small(), str(tmp_path), str(tmp_path / "model"))
    assert words in str(refusal.value)
    assert (tmp_path / "corpus.json").exists()
