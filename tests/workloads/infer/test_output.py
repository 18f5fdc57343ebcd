import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.data import storage
from workloads.errors import UserError
from workloads.infer import output
from workloads.infer.output import Totals
from workloads.infer.plan import File, parts

FILES = [File("a", 5, "d1"), File("b", 3, "d2")]
PARTS = parts(FILES, 3)


def write(folder, part, errors=()):
    table = pa.table({"row": range(part.rows)})
    totals = Totals(
        rows=part.rows, errors=dict(errors), prompt_tokens=10, completion_tokens=part.number
    )
    output.write_part(str(folder), part, table, totals)


def test_the_result_adds_up_the_parts_and_names_their_files(tmp_path):
    for part in PARTS:
        write(tmp_path / "run", part, {"bad": 1})
    made = output.commit(str(tmp_path), "run", PARTS, 4.5)
    assert (made.rows, made.prompt_tokens, made.completion_tokens) == (8, 30, 3)
    assert (made.rows_with_errors, made.errors, made.rows_per_s) == (3, {"bad": 3}, 4.5)
    assert [(one.file, one.rows) for one in made.files] == [
        ("run/part-00000.parquet", 3),
        ("run/part-00001.parquet", 2),
        ("run/part-00002.parquet", 3),
    ]
    assert output.read_result(str(tmp_path)) == made
    assert sum(pq.read_table(tmp_path / one.file).num_rows for one in made.files) == 8


def test_nothing_in_is_nothing_out(tmp_path):
    made = output.commit(str(tmp_path), "run", (), None)
    assert (made.rows, made.files) == (0, ())


def test_a_restart_sees_whole_parts_alone(tmp_path):
    assert output.finished(str(tmp_path / "run")) == set()
    write(tmp_path / "run", PARTS[1])
    (tmp_path / "run" / "part-00002.parquet.1f.part").write_bytes(b"cut off")
    assert output.finished(str(tmp_path / "run")) == {1}


def test_an_attempt_that_dies_while_it_writes_leaves_no_part(tmp_path, monkeypatch):
    def dies(_descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", dies)
    with pytest.raises(OSError, match="no space"):
        write(tmp_path / "run", PARTS[0])
    assert output.finished(str(tmp_path / "run")) == set()


def test_a_part_with_too_few_rows_is_never_written(tmp_path):
    totals = Totals(rows=3, errors={}, prompt_tokens=0, completion_tokens=0)
    with pytest.raises(ValueError, match="part 0 has 3 rows, not 2"):
        output.write_part(str(tmp_path), PARTS[0], pa.table({"row": [1, 2]}), totals)
    assert not output.finished(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a part of this run; remove it, and run again"),
        (b"PAR1", "not a part of this run; remove it, and run again"),
        (None, "no such file; name an output that all hosts share"),
    ],
)
def test_a_file_that_is_no_part_of_the_run_ends_in_no_result(tmp_path, content, words):
    for part in PARTS:
        write(tmp_path / "run", part)
    path = tmp_path / "run" / "part-00001.parquet"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"part-00001.parquet: {words}"):
        output.commit(str(tmp_path), "run", PARTS, None)
    assert not (tmp_path / "result.json").exists()


def test_what_a_killed_attempt_left_half_written_goes_with_the_result(tmp_path):
    for part in PARTS:
        write(tmp_path / "run", part)
    half = tmp_path / "run" / "part-00002.parquet.1f.part"
    half.write_bytes(b"cut off")
    output.commit(str(tmp_path), "run", PARTS, None)
    assert not half.exists()


def test_a_part_of_another_size_ends_in_no_result(tmp_path):
    for part in PARTS:
        write(tmp_path / "run", part)
    with pytest.raises(UserError, match="has 3 rows instead of 2"):
        output.commit(str(tmp_path), "run", parts([File("a", 2, "")], 2), None)


def test_a_run_is_another_one_if_anything_that_decides_its_output_is(settings):
    model = ["config", "tokenizer", ("model.safetensors", 1, 2)]
    base = output.run_id(settings(), FILES, model)
    others = [
        output.run_id(settings(**{name: value}), FILES, model)
        for name, value in {
            "task": "score",
            "prompt_column": "text",
            "id_column": None,
            "max_sequence_length": 40,
            "max_tokens": 15,
            "temperature": 0.5,
            "top_p": 0.5,
            "seed": 1,
            "dtype": "bfloat16",
            "rows_per_part": 5,
        }.items()
    ]
    others += [
        output.run_id(settings(), [File("a", 5, "other"), FILES[1]], model),
        output.run_id(settings(), FILES[::-1], model),
        output.run_id(settings(), FILES, ["config", "tokenizer", ("model.safetensors", 1, 3)]),
    ]
    assert len({base, *others}) == 14
    same = settings(batch_size=16, max_failures=0, prompts=("p.jsonl", "q.jsonl"))
    assert output.run_id(same, FILES, model) == base


def test_a_result_of_another_version_counts_as_none(tmp_path):
    assert output.read_result(str(tmp_path)) is None
    (tmp_path / "result.json").write_text(json.dumps({"rows": 3}))
    assert output.read_result(str(tmp_path)) is None


def test_in_an_object_store_a_part_appears_when_it_is_whole():
    folder = "memory://answers/run"
    write(folder, PARTS[0])
    assert output.finished(folder) == {0}
    made = output.commit("memory://answers", "run", PARTS[:1], None)
    assert made.rows == 3
    storage.remove("memory://answers")
