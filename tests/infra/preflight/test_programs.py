"""Which steps a stack has, and what is said of those that are not known."""

import json
from typing import Any

from infra.preflight.programs import Subject, Unknown, steps, subjects
from tests.infra.config.stack import changed, on_gke, read
from workloads.model.config import ModelConfig
from workloads.preflight.program import TrainStep
from workloads.settings import LoraSettings, ModelSettings

BY_HAND = {"name": "by-hand", "kind": "cluster", "slice": "chat"}
SIZES = ModelSettings(attention_heads=8, key_value_heads=4)


def of(stack) -> list[Any]:
    return [*subjects(read(stack))]


def test_training_takes_all_copies_of_its_slice_and_a_replica_one():
    slices = {"slices__0__topology": "4x8", "slices__0__count": 2, "slices__1__count": 3}
    run = {"workloads__1__mesh": {"data": 64}, "workloads__1__global_batch": 64}
    server = {"name": "chat", "kind": "serve", "slice": "chat", "model": "pretrain"}
    found = of(on_gke(**slices, **run, workloads__2={**server, "mesh": {"data": 2, "tensor": 4}}))
    chips = {step.kind: step.chips for one in found for step in steps(one)}
    assert list(chips) == ["train", "prefill", "decode"]
    assert (chips["train"].slices, chips["train"].devices) == (2, 64)
    assert (chips["train"].topology, chips["train"].host_topology) == ("4x8", "2x2")
    assert chips["prefill"] == chips["decode"]
    assert (chips["decode"].slices, chips["decode"].devices) == (1, 8)
    assert (chips["decode"].topology, chips["decode"].host_topology) == ("2x4", "2x4")


def test_a_run_is_looked_at_on_each_fallback_of_its_slice_with_the_mesh_that_it_has_there():
    shapes = [{"machine_type": "ct5lp-hightpu-4t", "topology": t} for t in ("2x2", "4x8")]
    run = {"workloads__1__mesh": {"data": 4, "tensor": 4}, "workloads__2": {**BY_HAND}}
    found = of(on_gke(slices__0__fallback=shapes, **run))
    seen = [(step.chips.topology, str(step.mesh)) for one in found for step in steps(one)]
    assert seen == [
        ("4x4", "data 4 x tensor 4"),
        ("2x2", "data 1 x tensor 4"),
        ("4x8", "data 8 x tensor 4"),
    ]
    parts = [one.workload.gradient_accumulation_steps for one in found]
    assert parts == [1, 4, 1]  # 32 rows, at most 8 on a device at once
    assert [one.workload.slice for one in found] == ["train", "train-v5e-2x2", "train-v5e-4x8"]


def test_vocabulary_and_length_are_those_of_the_data_workload():
    data = {"workloads__0__vocab_size": 4096, "workloads__0__sequence_length": 512}
    trained, served = of(changed(**data))
    assert (trained.model.vocab_size, trained.sequence_length) == (4096, 512)
    assert served.model == trained.model


def test_a_model_in_a_folder_is_read_where_it_lies(tmp_path):
    model = ModelConfig.of(SIZES, vocab_size=320, max_position_embeddings=256)
    (tmp_path / "config.json").write_text(json.dumps(model.to_hf(dtype="bfloat16")))
    _, served = of(changed(workloads__2__model={"path": str(tmp_path)}))
    assert isinstance(served, Subject)
    assert served.model == model


def test_a_folder_without_a_model_is_named(tmp_path):
    _, served = of(changed(workloads__2__model={"path": str(tmp_path)}))
    assert isinstance(served, Unknown)
    assert served.where == "raytpu:workloads[2]"
    assert served.why.startswith(f"chat: {tmp_path}/config.json: no such file")


def test_a_run_from_a_checkpoint_is_of_its_sizes_and_of_its_corpus_length(tmp_path):
    raw = {
        "model_type": "qwen3",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 8,
        "max_position_embeddings": 4096,
    }
    (tmp_path / "config.json").write_text(json.dumps(raw))
    tokenizer = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 500}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    folder = {"path": str(tmp_path)}
    corpus = {"name": "corpus", "kind": "data", "tokenizer": folder, "sequence_length": 128}
    stack = changed(workloads__0=corpus)
    stack["workloads"][1] |= {"base": folder, "lora": {"rank": 4, "alpha": 8}}
    trained, served = of(stack)
    (step,) = steps(trained)
    assert (step.model.layers, step.model.vocab_size) == (3, 512)
    assert isinstance(step, TrainStep)
    assert step.sequence_length == 128
    assert step.settings.lora == LoraSettings(rank=4, alpha=8)
    assert served.model == trained.model  # what serves it is as large

    stack["workloads"][1]["base"] = {"path": "gs://models/some"}
    told = [one.why for one in of(stack)]
    assert told[0] == "pretrain: the model lies in gs://models/some, and no network is asked"
