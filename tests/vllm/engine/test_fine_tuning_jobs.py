"""The functions of the jobs, in this process: a model of transformers, and what it learns.

First all of the model is trained, then adapters beside what came of that; transformers judges each.
Ray is left out: blocks of text and batches of rows are handed over as they come.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.workloads.simulated import CONTRACT
from workloads.data import prepare
from workloads.settings import DataSettings, LoraSettings, TrainMesh, TrainSettings
from workloads.train import loop, run
from workloads.train.checkpoints import latest_step
from workloads.train.job import Job
from workloads.train.stream import PADDING, Block, Reader

END = "<|im_end|>"
HOST = replace(CONTRACT, hosts=1, chips_per_host=2)
SETTINGS = TrainSettings(
    mesh=TrainMesh(fsdp=2),
    steps=40,
    global_batch=16,
    warmup_steps=5,
    learning_rate=0.01,
    dtype="float32",
    checkpoint_every=20,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory, tokenizer_json):
    """As it comes from elsewhere: in several files, with a template of its own for messages."""
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=328,  # more than the tokenizer has, as of the published models
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=2,
    )
    folder = tmp_path_factory.mktemp("base")
    Qwen3ForCausalLM(config).save_pretrained(folder, max_shard_size="100KB")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_json), eos_token=END)
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(base, tmp_path_factory):
    """The documentation of Python, and what the data job writes of it."""
    folder = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prepare, "on_cluster", lambda items, work: [*map(work, range(99), items)])
        return folder, prepare.prepare(DataSettings(sequence_length=32), str(folder), str(base))


@pytest.fixture
def told(monkeypatch):
    """The lines of the log."""
    lines = []
    monkeypatch.setattr(loop, "tell", lambda line, **_: lines.append(line))
    monkeypatch.setattr(loop, "_rows", rows)
    monkeypatch.setattr(loop, "StopNotice", lambda: SimpleNamespace(ends=lambda _: False))
    return lines


def rows(name, job):
    """Global batches, as Ray Data would bring them."""
    size, training = job.settings.global_batch, name == "train"
    split = job.corpus.train if training else job.corpus.held_out
    batches = job.batches if training else replace(job.batches, ragged="pad")
    seed = job.settings.seed if training else None
    reader = Reader(job.corpus_url, job.corpus, split, seed, batches)
    first = latest_step(job.url(run.CHECKPOINTS)) if training else 0
    last = job.settings.steps if training else batches.epoch_rows(split.rows) // size
    for step in range(first, last):
        tokens = reader.rows(Block(range(step, step + 1), 0))
        weight = (tokens[:, 0] != PADDING).astype(np.float32)
        number = jnp.full(size, step)
        yield {"tokens": jnp.maximum(tokens, 0), "weight": jnp.asarray(weight), "step": number}


def train(corpus, base, output, **changes):
    folder, manifest = corpus
    settings = SETTINGS.model_copy(update=changes)
    job = Job(HOST, settings, manifest, str(folder), str(output), base)
    job.check()
    assert run.claim(job.output, settings, manifest.digest, job.base_digest()) is None
    return loop.train(job)


def held_out(model, corpus):
    """Nats a token, as transformers computes them in float32."""
    model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    assert type(model) is Qwen3ForCausalLM
    files = sorted((corpus[0] / "held_out").glob("*.parquet"))
    packed = [row for file in files for row in pq.read_table(file)["tokens"].to_pylist()]
    with torch.no_grad():
        parts = torch.tensor(packed).split(256)
        losses = [model(part, labels=part).loss * len(part) for part in parts]
    return (torch.stack(losses).sum() / len(packed)).item()


def test_all_of_a_model_and_then_adapters_learn_what_transformers_sees(
    told, corpus, base, tmp_path
):
    whole, tuned = tmp_path / "whole", tmp_path / "tuned"
    result = train(corpus, base, whole)
    before, after = held_out(base, corpus), held_out(whole / "export", corpus)
    assert told[0].endswith(f" parameters; starting from {base}")
    assert told[1] == f"step 0/40  held-out loss {before:.3f}"
    assert after < before - 0.5
    assert result.held_out_loss == pytest.approx(after, rel=1e-2)  # exported in bfloat16

    lora = LoraSettings(rank=8, alpha=16)
    train(corpus, whole / "export", tuned, lora=lora, steps=30)
    assert held_out(tuned / "export", corpus) < after - 0.02
    assert (tuned / "adapter" / "adapter_model.safetensors").is_file()
    talk = json.loads((tuned / "export" / "tokenizer_config.json").read_text())
    assert talk == json.loads((base / "tokenizer_config.json").read_text())
