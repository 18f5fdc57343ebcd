"""Runs that start from a checkpoint: what must agree, and what is known of it at preview."""

import json

import pytest

from infra.config import TrainSpec
from infra.config.runs import run_id
from tests.infra.config.stack import changed, faults, on_gke, only, read

# Qwen3-4B's own, from its published config.json.
QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
}
LORA = {"rank": 16, "alpha": 32}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_4B))
    tokenizer = {"model": {"vocab": {"a": 0, "b": 151_642}}, "added_tokens": [{"id": 151_668}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return tmp_path


def tuned(base, tokenizer=None, **changes):
    """The sound local stack, whose run starts from `base`."""
    corpus = {"name": "corpus", "kind": "data", "sequence_length": 128}
    corpus |= {"tokenizer": {"path": str(tokenizer)}} if tokenizer else {"vocab_size": 2048}
    stack = changed(workloads__0=corpus)
    stack["workloads"][1] |= {"base": base, **changes}
    return stack


def test_a_checkpoint_and_a_corpus_of_its_tokenizer_are_taken(folder):
    mesh = {"fsdp": 16}
    assert faults(tuned({"path": str(folder)}, folder, mesh=mesh)) == []
    assert faults(tuned({"path": str(folder)}, folder, mesh=mesh, lora=LORA)) == []


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"model": {"layers": 2}}, "model", "is given beside base, whose own sizes are taken"),
        ({"mesh": {"tensor": 16}}, "mesh.tensor", "does not divide key_value_heads 8"),
        (
            {"mesh": {"data": 16}},
            "base",
            "weights, gradients and the optimizer's moments take 59.9 GiB of each chip",
        ),
        (
            {"lora": {**LORA, "targets": ["q_proj", "lm_head"]}},
            "lora.targets[1]",
            "use 'q_proj', 'k_proj'",
        ),
        ({"lora": {"rank": 16}}, "lora.alpha", "is missing"),
    ],
)
def test_what_does_not_fit_a_checkpoint_is_refused_by_its_place(folder, changes, where, words):
    stack = tuned({"path": str(folder)}, folder, **{"mesh": {"fsdp": 16}, **changes})
    lines = [line for line in faults(stack) if line.startswith("raytpu:workloads[1]")]
    assert words in only(lines, f"workloads[1].{where}")


def test_adapters_take_what_the_moments_of_all_weights_would(folder):
    """8 GiB of weights in bfloat16, 0.5 of adapters: a chip of 32 GiB holds it, one of 16 too."""
    stack = tuned({"path": str(folder)}, folder, mesh={"data": 16}, lora=LORA)
    assert [line for line in faults(stack) if line.startswith("raytpu:workloads[1]")] == []
    large = tuned({"path": str(folder)}, folder, mesh={"data": 16}, lora={**LORA, "rank": 1024})
    [line] = [line for line in faults(large) if line.startswith("raytpu:workloads[1]")]
    # By hand: 4,022,468,096 weights of 2 bytes, and for each layer and rank 16 bytes of
    # 2 (2560 + 4096) + 2 (2560 + 1024) + 3 (2560 + 9728) parameters.
    held = 4_022_468_096 * 2 + 36 * 1024 * 16 * (2 * 6656 + 2 * 3584 + 3 * 12288)
    assert f"with their gradients and moments, take {held / 2**30:.1f} GiB of each chip" in line


def test_a_corpus_of_another_tokenizer_is_refused(folder, tmp_path):
    own = tuned({"path": str(folder)}, mesh={"fsdp": 16})
    line = only(faults(own), "workloads[1].data")
    assert f"of which the model in {folder} knows nothing; give it tokenizer" in line
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("{}")
    line = only(faults(tuned({"path": str(folder)}, other, mesh={"fsdp": 16})), "workloads[1].data")
    assert f"packs with the tokenizer in {other}, which is not that in {folder}" in line


def test_a_folder_without_what_is_needed_is_named(tmp_path):
    lines = faults(tuned({"path": str(tmp_path)}, tmp_path))
    assert any("workloads[0].tokenizer.path" in x and "holds no tokenizer.json" in x for x in lines)
    assert any("workloads[1].base.path" in x and "config.json: no such file" in x for x in lines)


def test_another_architecture_is_refused_at_preview(folder):
    (folder / "config.json").write_text(json.dumps(QWEN3_4B | {"model_type": "llama"}))
    line = only(
        faults(tuned({"path": str(folder)}, folder, mesh={"fsdp": 16})), "workloads[1].base.path"
    )
    assert "model_type is 'llama'; only 'qwen3' is supported" in line


def test_a_vocabulary_is_of_the_tokenizer_or_of_the_file_but_not_of_both(folder):
    stack = tuned({"path": str(folder)}, folder, mesh={"fsdp": 16})
    stack["workloads"][0]["vocab_size"] = 2048
    assert "is given beside tokenizer" in only(faults(stack), "workloads[0].vocab_size")


def test_adapters_need_a_base():
    stack = changed()
    stack["workloads"][1] |= {"lora": LORA}
    assert "without base that is random weights" in only(faults(stack), "workloads[1].lora")


def second(**changes):
    """A run that starts from the first."""
    run = {
        "name": "tune",
        "kind": "train",
        "slice": "train",
        "data": "corpus",
        "base": "pretrain",
        "mesh": {"data": 16},
        "steps": 100,
        "global_batch": 32,
    }
    return {**run, **changes}


def test_a_run_may_start_from_one_above_it():
    assert faults(changed(workloads__3=second())) == []
    lines = faults(changed(workloads__3=second(mesh={"tensor": 16})))
    assert "does not divide" in only(lines, "workloads[3].mesh.tensor")
    assert "is no workload of kind train" in only(
        faults(changed(workloads__3=second(base="corpus"))), "workloads[3].base"
    )


@pytest.mark.parametrize("base", ["tune", "later"])
def test_a_run_cannot_start_from_itself_or_one_below(base):
    below = {key: value for key, value in second(name="later").items() if key != "base"}
    stack = changed(workloads__3=second(base=base), workloads__4=below)
    assert "is not declared before this run" in only(faults(stack), "workloads[3].base")


def ids(**changes):
    return ids_of(changed(**changes))


def ids_of(stack):
    config = read(stack)
    return {one.name: run_id(config, one) for one in config.workloads if isinstance(one, TrainSpec)}


def test_where_it_starts_from_is_part_of_what_a_run_is():
    plain = ids(workloads__3=second(base=None))["tune"]
    tuned = ids(workloads__3=second())["tune"]
    assert plain != tuned
    assert ids(workloads__3=second(log_every=7))["tune"] == tuned
    assert ids(workloads__3=second(lora=LORA))["tune"] != tuned
    stack = changed(workloads__3=second())
    stack["workloads"][1]["steps"] = 301  # another model to start from
    assert ids_of(stack)["tune"] != tuned


def test_without_base_and_adapters_a_run_is_what_it_always_was():
    """The digest of a run that existed before either: its checkpoints must be found again."""
    assert ids()["pretrain"] == ids(workloads__3=second())["pretrain"]
    config = read(changed())
    run = config.workload("pretrain")
    assert isinstance(run, TrainSpec)
    assert "lora" not in run.settings().learned()
    assert "lora" not in run.settings().model_dump()


def test_files_of_this_machine_are_out_of_reach_of_pods():
    stack = on_gke()
    stack["workloads"][0] = {
        "name": "corpus",
        "kind": "data",
        "tokenizer": {"path": "models/a"},
        "sequence_length": 128,
    }
    stack["workloads"][1] |= {"base": {"path": "models/a"}}
    lines = faults(stack)
    for place in ("workloads[0].tokenizer.path", "workloads[1].base.path"):
        assert any(f"{place}: 'models/a' is on this machine" in line for line in lines), lines
