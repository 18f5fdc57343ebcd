"""A workload of each kind of job, on a slice of two hosts; some on the output of another."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.local.local_stack import Done, LocalStack
from tests.workloads.simulated import TINY_MODEL

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
SLICE = {"name": "cube", "machine_type": "ct5p-hightpu-4t", "topology": "2x2x2"}
PROGRAM = """\
def main(context, most):
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils

    mine = range(jax.process_index(), int(most), jax.process_count())
    digits = jnp.array([sum(len(str(number)) for number in mine)])
    return {"digits": int(multihost_utils.process_allgather(digits).sum())}
"""
DIGITS = 10 * 1 + 90 * 2 + 900 * 3
"""Of the numbers from 0 to 999."""
ROWS = 11


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> LocalStack:
    return LocalStack(tmp_path_factory.mktemp("kinds"), "kinds")


@pytest.fixture(scope="module")
def up(kinds: LocalStack) -> Iterator[Done]:
    write_inputs(kinds.root)
    shared = {"slice": "cube", "mesh": {"data": 4, "tensor": 2}, "dtype": "float32"}
    kinds.declare(
        slices=[SLICE],
        workloads=[
            {"name": "corpus", "kind": "data", "vocab_size": 512, "sequence_length": 32},
            {
                "name": "pretrain",
                "kind": "train",
                "data": "corpus",
                "model": TINY_MODEL,
                "steps": 2,
                "warmup_steps": 1,
                "global_batch": 16,
                **shared,
            },
            {
                "name": "answers",
                "kind": "infer",
                "model": "pretrain",
                "prompts": ["prompts.jsonl"],
                "id_column": "id",
                "max_sequence_length": 32,
                "max_tokens": 4,
                "batch_size": 8,
                **shared,
            },
            {"name": "look", "kind": "check", "slice": "cube", "sizes_mib": [1]},
            {
                "name": "mine",
                "kind": "spmd",
                "slice": "cube",
                "program": "own:main",
                "args": ["1000"],
                "code": "own",
            },
        ],
    )
    try:
        done = kinds.up()
        assert done.code == 0, done.output
        yield done
    finally:
        kinds.destroy()


def write_inputs(root: Path) -> None:
    (root / "own").mkdir()
    (root / "own/own.py").write_text(PROGRAM)
    rows = [{"id": f"row {number}", "prompt": "The slice" * number} for number in range(ROWS)]
    (root / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.usefixtures("up")
def test_a_program_of_ones_own_returns_what_all_hosts_computed(kinds: LocalStack) -> None:
    result = json.loads((kinds.storage / "mine/result.json").read_text())
    assert result["returned"] == {"digits": DIGITS}


@pytest.mark.usefixtures("up")
def test_a_check_finds_both_hosts_sound(kinds: LocalStack) -> None:
    result = json.loads((kinds.storage / "look/result.json").read_text())
    assert result["faults"] == []
    assert len(result["hosts"]) == 2  # of a v5p 2x2x2


@pytest.mark.usefixtures("up")
def test_each_prompt_has_its_row(kinds: LocalStack) -> None:
    result = json.loads((kinds.storage / "answers/result.json").read_text())
    files = [kinds.storage / "answers" / part["file"] for part in result["files"]]
    rows: list[dict[str, Any]] = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert [row["id"] for row in rows] == [f"row {number}" for number in range(ROWS)]
    assert [bool(row["error"]) for row in rows][:2] == [True, False]  # the first prompt is empty


def test_up_tells_what_each_of_them_found(kinds: LocalStack, up: Done) -> None:
    assert set(kinds.outputs()["results"]) == {"corpus", "pretrain", "answers", "look", "mine"}
    assert "own:main ended on all hosts" in up.output


@pytest.mark.usefixtures("up")
def test_a_second_up_runs_none_of_them_again(kinds: LocalStack) -> None:
    done = kinds.up("--expect-no-changes")
    assert done.code == 0, done.output


@pytest.mark.usefixtures("up")
def test_another_argument_runs_the_program_alone_again(kinds: LocalStack) -> None:
    file = kinds.root / "stacks/Pulumi.kinds.yaml"
    file.write_text(file.read_text().replace("'1000'", "'100'"))
    done = kinds.up()
    assert done.code == 0, done.output
    result = json.loads((kinds.storage / "mine/result.json").read_text())
    assert result["returned"] == {"digits": 10 + 90 * 2}
    assert sum(done.counts.get(what, 0) for what in ("updated", "replaced", "created")) == 1
