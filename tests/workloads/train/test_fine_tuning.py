"""Training that starts from a checkpoint: all of it, or adapters beside it. On forced devices."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file

from tests.workloads.simulated import CONTRACT
from workloads.data.corpus import Corpus, Split
from workloads.errors import UserError
from workloads.model import hf, sharding
from workloads.settings import LoraSettings, ModelSettings, TrainMesh, TrainSettings
from workloads.train import run
from workloads.train.checkpoints import Checkpoints
from workloads.train.flops import model_flops
from workloads.train.job import Job
from workloads.train.step import make_trainer

LORA = LoraSettings(rank=4, alpha=8)
ROWS = np.random.default_rng(0).integers(0, 320, (4, 8, 17)).astype(np.int32)
"""Of four steps."""


@pytest.fixture(scope="module")
def shallow(tiny_config):
    """One layer, and a head of its own."""
    return replace(tiny_config, layers=1, tie_word_embeddings=False)


@pytest.fixture(scope="module")
def base(tmp_path_factory, devices, shallow, tokenizer_json):
    """A checkpoint in bfloat16, as they are published."""
    mesh = sharding.make_mesh(TrainMesh(), devices[:1])
    folder = tmp_path_factory.mktemp("base") / "shallow"
    hf.export(sharding.init_sharded(shallow, mesh, seed=5), folder, tokenizer_json=tokenizer_json)
    return folder


def trainer_on(devices, config, base, mesh=None, **changes):
    mesh = mesh or TrainMesh()
    settings = {"steps": 30, "global_batch": 8, "warmup_steps": 0, "learning_rate": 0.01}
    chosen = TrainSettings(mesh=mesh, **{**settings, "dtype": "float32", **changes})
    return make_trainer(chosen, config, sharding.make_mesh(mesh, devices[: mesh.devices]), base)


@pytest.fixture(scope="module")
def adapters(devices, shallow, base):
    return trainer_on(devices, shallow, base, lora=LORA)


def losses(trainer, state, steps: Sequence[int] = range(4)):
    told = []
    for step in steps:
        state, loss = trainer.train(state, jax.device_put(ROWS[step], trainer.batch))
        told.append(float(loss))
    return state, told


def size(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def test_all_of_it_starts_as_the_checkpoint_in_float32(devices, shallow, base):
    trainer = trainer_on(devices, shallow, base, TrainMesh(data=2, fsdp=2, tensor=2))
    params = trainer.init().params
    stored = load_file(base / "model.safetensors")
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    assert size(params) == sum(tensor.size for tensor in stored.values())
    up = params["layers"]["mlp"]["up_proj"]["kernel"]
    assert np.array_equal(up[0], stored["model.layers.0.mlp.up_proj.weight"].astype(np.float32).T)
    assert {shard.data.size for shard in up.addressable_shards} == {up.size // 4}
    head = params["lm_head"]["kernel"]
    assert np.array_equal(head, stored["lm_head.weight"].astype(np.float32).T)


def test_at_first_adapters_leave_the_model_as_it_is(devices, shallow, base, adapters):
    whole = trainer_on(devices, shallow, base)
    rows = ROWS[0][:, :-1]
    with_adapters, without = (one.model(one.init())(rows) for one in (adapters, whole))
    assert np.array_equal(with_adapters, without)


def test_moments_are_of_adapters_alone(devices, shallow, adapters):
    # By hand: rank 4 times both sides of q, k, v, o (64 x 128, 64, 64, 128), gate, up, down (128).
    by_hand = 4 * ((64 + 128) * 2 + (64 + 64) * 2 + (64 + 128) * 3)
    assert size(adapters.abstract.params) == by_hand
    moments = [leaf for leaf in jax.tree.leaves(adapters.abstract.optimizer) if leaf.ndim]
    assert size(moments) == 2 * by_hand
    # The rest is there once, in the type that is computed in.
    half = trainer_on(devices, shallow, None, lora=LORA, dtype="bfloat16").abstract.frozen
    assert {leaf.dtype for leaf in jax.tree.leaves(half)} == {jnp.dtype("bfloat16")}
    assert (
        size(half)
        == size(adapters.abstract.frozen)
        == size(trainer_on(devices, shallow, None).abstract.params)
    )


def test_adapters_learn_and_the_rest_stays(adapters):
    state = adapters.init()
    before = jax.device_get(state.frozen)
    state, told = losses(adapters, state, (0,) * 12)
    assert told[-1] < told[0] - 0.1
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(state.frozen), strict=True):
        assert np.array_equal(old, new)


def test_adapters_learn_the_same_however_it_is_computed(devices, shallow, base, adapters):
    _, expected = losses(adapters, adapters.init())
    mesh = TrainMesh(data=2, fsdp=2, tensor=2)
    more = {"gradient_accumulation_steps": 2, "remat": "layers"}
    cut = trainer_on(devices, shallow, base, mesh, lora=LORA, **more)
    _, told = losses(cut, cut.init())
    np.testing.assert_allclose(told, expected, rtol=2e-5)


def test_a_checkpoint_holds_adapters_and_a_run_goes_on_from_it(adapters, tmp_path):
    url = str(tmp_path / "checkpoints")
    state, _ = losses(adapters, adapters.init(), range(2))
    with Checkpoints(url, keep=1) as checkpoints:
        checkpoints.save(2, state)
        checkpoints.wait()
    _, expected = losses(adapters, state, range(2, 4))
    stored = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    whole = 4 * size(adapters.abstract.frozen)
    assert stored < whole
    with Checkpoints(url, keep=1) as checkpoints:
        saved = checkpoints.restore(2, adapters.abstract)
    assert saved.frozen == {}
    resumed = replace(saved, frozen=adapters.start.frozen())
    assert losses(adapters, resumed, range(2, 4))[1] == expected


def test_a_step_of_adapters_computes_two_thirds_of_the_matrix_products(
    devices, shallow, base, adapters
):
    """As XLA counts those of the compiled step; of the scores all passes are computed."""
    length = ROWS.shape[-1] - 1

    def counted(trainer):
        analysis = trainer.lower(length).compile().cost_analysis()
        return analysis["flops"]

    tokens = 8 * length
    whole = trainer_on(devices, shallow, base)
    ratio = counted(adapters) / counted(whole)
    told = model_flops(shallow, tokens, length, frozen=True) / model_flops(shallow, tokens, length)
    assert told == pytest.approx(0.67, abs=0.02)
    assert ratio == pytest.approx(told, rel=0.15)


def test_every_adapter_gets_a_gradient(adapters):
    """B alone at the first step, for A is multiplied by it; both at the second."""
    state, _ = losses(adapters, adapters.init(), range(2))
    flat = nnx.to_flat_state(nnx.State(state.params))
    assert len(flat) == 14
    fresh = dict(nnx.to_flat_state(nnx.State(adapters.init().params)))
    for path, leaf in flat:
        assert np.abs(np.asarray(leaf - fresh[path])).max() > 0, path


def job(base, tokenizer_json, *, vocab_size=320, sequence_length=16, **changes):
    text = Split(documents=2, text_bytes=9, tokens=9, rows=64, left_out_tokens=0, parts=())
    corpus = Corpus(
        digest="",
        settings_digest="",
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        rows_per_group=64,
        train=text,
        held_out=text,
        bytes_per_token=1,
        unigram_entropy=1,
        held_out_entropy=1,
    )
    values = {"mesh": TrainMesh(data=8), "steps": 30, "global_batch": 8, "warmup_steps": 0}
    settings = TrainSettings(**{**values, **changes})
    return Job(CONTRACT, settings, corpus, str(tokenizer_json.parent), "out", base)


def test_a_corpus_of_the_models_own_tokenizer_is_taken(base, tokenizer_json, shallow):
    taken = job(base, tokenizer_json, lora=LORA)
    taken.check()
    assert taken.model_config() == shallow


def test_all_in_which_a_corpus_and_a_checkpoint_disagree_is_told_at_once(
    base, tokenizer_json, tmp_path
):
    other = tmp_path / "tokenizer.json"
    other.write_text(tokenizer_json.read_text() + "\n")
    wrong = job(base, other, vocab_size=321, sequence_length=300, model=ModelSettings(layers=2))
    with pytest.raises(UserError) as refusal:
        wrong.check()
    digests = [
        hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        for path in (other, base / "tokenizer.json")
    ]
    model, packed, tokens, length = refusal.value.faults
    assert model == f"model: sizes are given beside base, and {base} decides them; leave model out"
    assert all(digest in packed for digest in digests)
    assert tokens.startswith("data: the corpus has 321 tokens, and the model in")
    assert "have 300 tokens" in length
    assert length.endswith("made for 256; lower sequence_length to that")


def test_a_folder_that_is_no_checkpoint_is_named(tokenizer_json, tmp_path):
    with pytest.raises(UserError) as refusal:
        job(tmp_path, tokenizer_json).check()
    [line] = refusal.value.faults
    assert line.startswith(f"base: {tmp_path}/config.json: no such file")


def test_adapters_without_a_base_are_refused(tokenizer_json):
    with pytest.raises(UserError, match="lora: adapters are of no use beside random weights"):
        job(None, tokenizer_json, lora=LORA).check()


def test_another_checkpoint_is_another_run(base, tokenizer_json, tmp_path):
    tuned = job(base, tokenizer_json, lora=LORA)
    output, digest = str(tmp_path / "run"), tuned.base_digest()
    assert run.claim(output, tuned.settings, "c", digest) is None
    assert run.claim(output, tuned.settings, "c", digest) is None
    copied = shutil.copytree(base, tmp_path / "other")
    (copied / "config.json").write_text((base / "config.json").read_text() + " ")
    other = replace(tuned, base=copied)
    wider = tuned.settings.model_copy(update={"lora": LoraSettings(rank=8, alpha=8)})
    with pytest.raises(UserError) as refusal:
        run.claim(output, wider, "c", other.base_digest())
    faults = [line.split(" is ")[0] for line in refusal.value.faults]
    assert faults == ["lora.rank", "model.base"]
