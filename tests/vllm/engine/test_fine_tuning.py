"""Training that starts from a checkpoint of transformers, step by step against torch.

The checkpoint is a small Qwen3 with random weights: the published ones cannot be had without a
network, and differ from it in size alone.
"""

import jax
import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from workloads.model import hf, peft, sharding
from workloads.model.config import read_config
from workloads.model.lora import merge
from workloads.settings import LoraSettings, TrainMesh, TrainSettings
from workloads.train.step import make_trainer

MESH = TrainMesh(fsdp=2)
LORA = LoraSettings(rank=4, alpha=8, targets=("q_proj", "v_proj", "o_proj", "up_proj", "down_proj"))
STEPS = 5
ROWS = np.random.default_rng(1).integers(0, 280, (STEPS, 4, 25)).astype(np.int32)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def base(request, tmp_path_factory):
    """In several files, as a large model has."""
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=280,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=24,
        max_position_embeddings=128,
        initializer_range=0.1,
        tie_word_embeddings=request.param,
    )
    folder = tmp_path_factory.mktemp("base")
    Qwen3ForCausalLM(config).save_pretrained(folder, max_shard_size="100KB")
    assert len([*folder.glob("*.safetensors")]) > 2
    return folder


def settings(**changes):
    chosen = {"learning_rate": 0.003, "warmup_steps": 2, "weight_decay": 0.1, "gradient_clip": 1.0}
    return TrainSettings(
        mesh=MESH, steps=STEPS, global_batch=4, **{"dtype": "float32", **chosen, **changes}
    )


def ours(base, chosen):
    """The losses of each step, and the model at the end."""
    trainer = make_trainer(chosen, read_config(base), sharding.make_mesh(MESH), base)
    state, losses = trainer.init(), []
    for rows in ROWS:
        state, loss = trainer.train(state, jax.device_put(rows, trainer.batch))
        losses.append(float(loss))
    return losses, trainer.model(state)


class Adapter(torch.nn.Module):
    """LoRA as its paper has it, around a linear layer that stays as it is."""

    def __init__(self, linear, a, b, scale):
        super().__init__()
        self.linear, self.scale = linear, scale
        self.a, self.b = torch.nn.Parameter(a), torch.nn.Parameter(b)

    def forward(self, x):
        return self.linear(x) + self.scale * ((x @ self.a) @ self.b)


def theirs(chosen, model):
    """As `ours`, by torch's AdamW with the same schedule, clipping and decay."""
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    still = {name for name in trained if "norm" in name or "embed_tokens" in name}
    groups = [
        {"params": [one for name, one in trained.items() if name not in still]},
        {"params": [trained[name] for name in sorted(still)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=chosen.weight_decay
    )
    losses = []
    for step, rows in enumerate(torch.tensor(ROWS, dtype=torch.long)):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        loss = model(rows, labels=rows).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained.values(), chosen.gradient_clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def rate(step):
    """By hand: up in a line over 2 steps, then half a cosine down to a tenth at step 5."""
    if step < 2:
        return 0.003 * step / 2
    return 0.003 * (0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * (step - 2) / 3)))


def loaded(base, dtype="float32"):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=getattr(torch, dtype))
    assert type(model) is Qwen3ForCausalLM
    return model


def logits(model):
    with torch.no_grad():
        return model(torch.tensor(ROWS[0], dtype=torch.long)).logits.numpy()


def of_layer(tree, number):
    """Its parameters, of those that lie stacked."""
    return jax.tree.map(lambda stacked: stacked[number], tree["layers"])


def saved(model, base, folder):
    """What we trained, as transformers reads it."""
    (base / "tokenizer.json").exists() or _tokenizer(base)
    hf.export(model, folder, tokenizer_json=base / "tokenizer.json", dtype="float32")
    return loaded(folder)


def _tokenizer(folder):
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(folder / "tokenizer.json"))


def test_all_of_it_is_trained_as_torch_does(base, tmp_path):
    chosen = settings()
    told, model = ours(base, chosen)
    other = loaded(base)
    np.testing.assert_allclose(told, theirs(chosen, other), rtol=1e-4)
    trained = logits(saved(model, base, tmp_path / "out"))
    assert np.abs(trained - logits(loaded(base))).max() > 0.1  # it has learned something
    np.testing.assert_allclose(trained, logits(other), atol=2e-3)


def test_adapters_are_trained_as_torch_does(base, tmp_path):
    chosen = settings(lora=LORA)
    trainer = make_trainer(chosen, read_config(base), sharding.make_mesh(MESH), base)
    first = jax.device_get(trainer.init().params)
    told, model = ours(base, chosen)
    other = loaded(base).requires_grad_(False)
    for number, layer in enumerate(other.model.layers):
        for block, matrices in of_layer(first, number).items():
            for name, pair in matrices.items():
                owner = getattr(layer, block)
                a, b = (torch.tensor(np.array(pair[key])) for key in ("lora_a", "lora_b"))
                setattr(owner, name, Adapter(getattr(owner, name), a, b, LORA.alpha / LORA.rank))
    np.testing.assert_allclose(told, theirs(chosen, other), rtol=1e-4)
    merge(model)
    trained = logits(saved(model, base, tmp_path / "out"))
    assert np.abs(trained - logits(loaded(base))).max() > 0.05
    np.testing.assert_allclose(trained, logits(other), atol=2e-3)


def test_peft_loads_the_adapters_and_computes_what_we_do(base, tmp_path):
    _, model = ours(base, settings(lora=LORA))
    peft.export(model, tmp_path / "adapter", lora=LORA)
    theirs = PeftModel.from_pretrained(loaded(base), tmp_path / "adapter")
    merge(model)
    merged = logits(saved(model, base, tmp_path / "out"))
    assert np.abs(merged - logits(loaded(base))).max() > 0.05
    np.testing.assert_allclose(logits(theirs), merged, atol=1e-4)


def test_gradients_are_those_of_torch(base):
    """By Adam's first moment after one step: a tenth of the gradient, which nothing clips."""
    chosen = settings(gradient_clip=1e9)
    trainer = make_trainer(chosen, read_config(base), sharding.make_mesh(MESH), base)
    state, _ = trainer.train(trainer.init(), jax.device_put(ROWS[0], trainer.batch))
    moments = state.optimizer[1][0].mu
    other = loaded(base)
    rows = torch.tensor(ROWS[0], dtype=torch.long)
    other(rows, labels=rows).loss.backward()
    layer, block = other.model.layers[1], of_layer(moments, 1)
    for found, expected in {
        "q_proj": (block["self_attn"]["q_proj"]["kernel"].T, layer.self_attn.q_proj.weight),
        "k_norm": (block["self_attn"]["k_norm"]["scale"], layer.self_attn.k_norm.weight),
        "down_proj": (block["mlp"]["down_proj"]["kernel"].T, layer.mlp.down_proj.weight),
        "embedding": (moments["embed_tokens"]["embedding"], other.model.embed_tokens.weight),
    }.values():
        gradient = expected.grad.numpy()
        np.testing.assert_allclose(10 * found, gradient, atol=1e-4 * np.abs(gradient).max())


def test_in_bfloat16_the_first_loss_is_torchs_within_its_figures(base):
    told, _ = ours(base, settings(dtype="bfloat16"))
    rows = torch.tensor(ROWS[0], dtype=torch.long)
    with torch.no_grad():
        expected = loaded(base, "bfloat16")(rows, labels=rows).loss.item()
    assert told[0] == pytest.approx(expected, rel=1e-2)
