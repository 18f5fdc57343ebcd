"""The job on a simulated slice of two hosts of four chips: real raylets, a real JaxTrainer."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workloads.simulated import CONTRACT, Job, Slice

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]
ROWS = {"a.jsonl": 51, "b.parquet": 37, "c.jsonl": 0, "d.parquet": 1, "e.jsonl": 8}
NULLS = {("a.jsonl", 7), ("b.parquet", 3)}


def prompt(name, row):
    if (name, row) in NULLS:
        return None
    return f"{'The slice serves. ' * (row % 5 + 1)}{name} {row}"


def write(folder):
    for name, count in ROWS.items():
        records = [{"id": f"{name}/{row}", "prompt": prompt(name, row)} for row in range(count)]
        path = folder / name
        if name.endswith(".jsonl"):
            path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        else:
            pq.write_table(pa.Table.from_pylist(records), path, row_group_size=10)


@pytest.fixture(scope="module")
def tpu(tmp_path_factory):
    # Ray's sockets lie in its folder, and a socket's path is at most 107 bytes long.
    tpu = Slice(str(tmp_path_factory.getbasetemp().parent / "rayi"))
    yield tpu
    tpu.cluster.shutdown()


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prompts")
    write(folder)
    return folder


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("answers")


def infer(tpu, model, output, **settings):
    plain = {
        "batch_size": 8,
        "rows_per_part": 8,
        "max_sequence_length": 128,
        "max_tokens": 24,
        "dtype": "float32",
    }
    return Job(
        tpu.cluster.address,
        "workloads.infer.main",
        *("--slice", CONTRACT.to_json()),
        *("--settings", json.dumps(plain | settings)),
        *("--model", str(model)),
        *("--output", str(output)),
    )


def answers(output):
    result = json.loads((output / "result.json").read_text())
    files = [pq.read_table(output / part["file"]) for part in result["files"]]
    return result, [row for table in files for row in table.to_pylist()]


def parts(output):
    return {path: path.stat().st_mtime_ns for path in output.glob("*/part-*.parquet")}


def test_a_host_lost_half_way_costs_no_row_and_no_row_is_there_twice(
    tpu, shallow_folder, prompts, output
):
    job = infer(tpu, shallow_folder, output, prompts=[str(prompts)])
    job.wait_for("97 prompts in 5 files", 300)
    job.wait_for("24 of 97 rows", 600)
    tpu.lose_host(1)
    before = parts(output)
    tpu.bring_back_host(1)
    assert job.finish(600) == 0, job.lines
    assert any("of 13 parts to compute" in line and "13 of" not in line for line in job.lines)
    result, rows = answers(output)
    ids = [f"{name}/{row}" for name, count in ROWS.items() for row in range(count)]
    assert [row["id"] for row in rows] == ids
    assert [f"{Path(row['file']).name}/{row['row']}" for row in rows] == ids
    assert (result["rows"], result["rows_with_errors"]) == (97, 2)
    assert [row["id"] for row in rows if row["text"] is None] == ["a.jsonl/7", "b.parquet/3"]
    assert len(before) >= 2
    assert before.items() <= parts(output).items()  # what was finished is left as it was
    assert not list(output.glob("*/*.part"))


def test_a_finished_run_is_not_computed_again(tpu, shallow_folder, prompts, output):
    before = parts(output)
    job = infer(tpu, shallow_folder, output, prompts=[str(prompts)], batch_size=16)
    assert job.finish(120) == 0, job.lines
    assert any("this run is finished" in line for line in job.lines)
    assert parts(output) == before


def test_a_driver_killed_half_way_is_taken_up_and_other_settings_get_files_of_their_own(
    tpu, shallow_folder, prompts, output
):
    generated = parts(output)
    settings = {"prompts": [str(prompts / "a.jsonl")], "task": "score"}
    job = infer(tpu, shallow_folder, output, **settings)
    job.wait_for("16 of 51 rows", 600)
    job.process.kill()
    job.finish(60)
    before = parts(output).items() - generated.items()
    assert before
    job = infer(tpu, shallow_folder, output, **settings)
    assert job.finish(600) == 0, job.lines
    _, rows = answers(output)
    assert [row["id"] for row in rows] == [f"a.jsonl/{row}" for row in range(51)]
    assert [row["row"] for row in rows if row["log_likelihood"] is None] == [7]
    assert before | generated.items() <= parts(output).items()


def test_one_row_for_two_hosts_completes(tpu, shallow_folder, prompts, tmp_path):
    job = infer(tpu, shallow_folder, tmp_path, prompts=[str(prompts / "d.parquet")], max_tokens=4)
    assert job.finish(600) == 0, job.lines
    [row] = answers(tmp_path)[1]
    assert (row["id"], row["completion_tokens"]) == ("d.parquet/0", 4)


def test_all_that_is_wrong_with_the_files_is_told_at_once_and_nothing_is_computed(
    tpu, shallow_folder, tmp_path
):
    (tmp_path / "a.jsonl").write_text('{"id": 1, "prompt": 3}\n{"id": null, "prompt": ""}\n')
    images = pa.table({"id": [1], "prompt": [b"\x89PNG"]})
    pq.write_table(images, tmp_path / "b.parquet")
    job = infer(tpu, shallow_folder, tmp_path / "out", prompts=[str(tmp_path)])
    assert job.finish(120) == 1
    kind, id_, image = job.lines
    assert "a.jsonl:1: column 'prompt' holds int, neither text nor a list of token ids" in kind
    assert "a.jsonl:2: id null is neither text nor a whole number" in id_
    assert "b.parquet: column 'prompt' holds images or other bytes (binary)" in image
    assert not (tmp_path / "out").exists()
