"""Completions and likelihoods against loops of a few lines that know no batch, cache or padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from workloads.infer.compute import Computer
from workloads.infer.plan import batches
from workloads.model import hf, sharding
from workloads.settings import MeshSettings

ENDS = (0, 2)
WIDTHS = (16, 32)
RANDOM = np.random.default_rng(5)
PROMPTS = [
    RANDOM.integers(3, 320, size).tolist() for size in (1, 2, 7, 16, 17, 30, 32, 5, 9, 3, 11)
]


@pytest.fixture(scope="module")
def plain(devices, tiny_folder):
    """The model on one device, as a function of one sequence: its logits after each token."""
    model = hf.load(tiny_folder, sharding.make_mesh(MeshSettings(), devices[:1]), dtype=jnp.float32)
    forward = jax.jit(lambda tokens: model(tokens[None])[0])

    def logits(tokens):
        padded = np.zeros(64, np.int32)
        padded[: len(tokens)] = tokens
        return np.asarray(forward(padded))[: len(tokens)]

    return logits


def greedy(logits, prompt, most):
    made = []
    while len(made) < most and not (made and made[-1] in ENDS):
        made.append(int(logits([*prompt, *made])[-1].argmax()))
    return made


def computer(tiny_folder, settings, data=4, tensor=2):
    mesh = sharding.make_mesh(MeshSettings(data=data, tensor=tensor))
    return Computer(hf.load(tiny_folder, mesh, dtype=jnp.float32), settings)


def generated(made, prompts, size):
    found = {}
    for batch in batches(prompts, size, WIDTHS):
        tokens, counts = made.generate(batch, np.arange(size, dtype=np.uint32))
        for row, index in enumerate(batch.indices):
            found[index] = tokens[row, : counts[row]].tolist()
    return [found[index] for index in range(len(prompts))]


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_prompt_gets_the_same_tokens_in_any_batch_as_alone(plain, tiny_folder, settings, size):
    made = generated(computer(tiny_folder, settings()), PROMPTS, size)
    assert made == [greedy(plain, prompt, 16) for prompt in PROMPTS]


def test_the_cut_of_the_mesh_does_not_matter(tiny_folder, settings):
    one = generated(computer(tiny_folder, settings(), data=8, tensor=1), PROMPTS, 8)
    assert one == generated(computer(tiny_folder, settings(), data=2, tensor=4), PROMPTS, 8)


def test_a_text_ends_with_its_end_token_and_others_go_on(plain, tiny_folder, settings, tiny_config):
    """A model as this seldom ends a text, so one that it does make is declared an end."""
    made = [greedy(plain, prompt, 16) for prompt in PROMPTS]
    end = made[2][3]
    model = hf.load(
        tiny_folder, sharding.make_mesh(MeshSettings(data=4, tensor=2)), dtype=jnp.float32
    )
    object.__setattr__(model.config, "eos_token_ids", (end,))
    expected = [tokens[: tokens.index(end) + 1] if end in tokens else tokens for tokens in made]
    assert {len(tokens) for tokens in expected} != {16}
    assert generated(Computer(model, settings()), PROMPTS, 8) == expected
    del tiny_config


def test_draws_depend_on_a_rows_own_seed_alone(tiny_folder, settings):
    made = computer(tiny_folder, settings(temperature=1.0))
    [batch] = batches([PROMPTS[2]] * 8, 8, WIDTHS)
    seeds = np.array([1, 2, 3, 1, 2, 3, 4, 4], np.uint32)
    rows = [tuple(row) for row in made.generate(batch, seeds)[0].tolist()]
    assert rows[:3] == rows[3:6]
    assert len({*rows}) == 4


def test_a_score_is_the_sum_of_the_log_probabilities_of_all_but_the_first_token(
    plain, tiny_folder, settings
):
    made, found = computer(tiny_folder, settings(task="score")), {}
    for batch in batches(PROMPTS, 8, WIDTHS):
        scores = made.score(batch)
        found |= {index: float(scores[row]) for row, index in enumerate(batch.indices)}
    for index, prompt in enumerate(PROMPTS):
        log_p = np.asarray(jax.nn.log_softmax(plain(prompt)))
        by_hand = sum(log_p[i, token] for i, token in enumerate(prompt[1:]))
        assert found[index] == pytest.approx(by_hand, abs=2e-4)
    assert found[0] == 0  # one token: nothing to be judged by what came before
