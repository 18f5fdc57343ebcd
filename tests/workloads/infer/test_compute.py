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
WIDTHS = (32,)
RANDOM = np.random.default_rng(5)
PROMPTS = [
    RANDOM.integers(3, 320, size).tolist() for size in (1, 2, 7, 16, 17, 30, 32, 5, 9, 3, 11)
]


@pytest.fixture(scope="module")
def plain(devices, shallow_folder):
    """The model on one device, as a function of one sequence: its logits after each token."""
    model = hf.load(
        shallow_folder, sharding.make_mesh(MeshSettings(), devices[:1]), dtype=jnp.float32
    )
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


def computer(shallow_folder, settings, data=4, tensor=2):
    mesh = sharding.make_mesh(MeshSettings(data=data, tensor=tensor))
    return Computer(hf.load(shallow_folder, mesh, dtype=jnp.float32), settings)


def generated(made, prompts, size):
    found = {}
    for batch in batches(prompts, size, WIDTHS):
        tokens, counts = made.generate(batch, np.arange(size, dtype=np.uint32))
        for row, index in enumerate(batch.indices):
            found[index] = tokens[row, : counts[row]].tolist()
    return [found[index] for index in range(len(prompts))]


@pytest.mark.parametrize("size", [4, 16])
def test_a_prompt_gets_the_same_tokens_in_any_batch_as_alone(plain, shallow_folder, settings, size):
    made = generated(computer(shallow_folder, settings()), PROMPTS, size)
    assert made == [greedy(plain, prompt, 16) for prompt in PROMPTS]
    # Some end by themselves and the others go on, each as if it were alone.
    assert min(map(len, made)) < 16 == max(map(len, made))


def test_the_cut_of_the_mesh_does_not_matter(plain, shallow_folder, settings):
    made = generated(computer(shallow_folder, settings(), data=2, tensor=4), PROMPTS, 8)
    assert made == [greedy(plain, prompt, 16) for prompt in PROMPTS]


def test_draws_depend_on_a_rows_own_seed_alone(shallow_folder, settings):
    made = computer(shallow_folder, settings(temperature=1.0))
    [batch] = batches([PROMPTS[2]] * 8, 8, WIDTHS)
    seeds = np.array([1, 2, 3, 1, 2, 3, 4, 4], np.uint32)
    rows = [tuple(row) for row in made.generate(batch, seeds)[0].tolist()]
    assert rows[:3] == rows[3:6]
    assert len({*rows}) == 4


def test_a_score_is_the_sum_of_the_log_probabilities_of_all_but_the_first_token(
    plain, shallow_folder, settings
):
    made, found = computer(shallow_folder, settings(task="score")), {}
    for batch in batches(PROMPTS, 8, WIDTHS):
        scores = made.score(batch)
        found |= {index: float(scores[row]) for row, index in enumerate(batch.indices)}
    for index, prompt in enumerate(PROMPTS):
        log_p = np.asarray(jax.nn.log_softmax(plain(prompt)))
        by_hand = sum(log_p[i, token] for i, token in enumerate(prompt[1:]))
        assert found[index] == pytest.approx(by_hand, abs=2e-4)
    assert found[0] == 0  # one token: nothing to be judged by what came before
