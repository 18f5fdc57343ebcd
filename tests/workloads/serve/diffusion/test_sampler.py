"""DDIM and guidance against numbers that were worked out by hand, and against numpy."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.serve.diffusion import sampler
from workloads.serve.diffusion.config import DiffusionConfig


def test_the_last_step_leaves_as_little_of_a_picture_as_in_the_first_paper():
    """Of betas from 1e-4 to 0.02 in 1000 steps (arXiv 2006.11239) 4.0358e-5 is left."""
    signal = sampler.kept_signal(DiffusionConfig(trained=True, vocab_size=9))
    assert signal[0] == pytest.approx(0.9999)
    assert signal[-1] == pytest.approx(4.0358e-5, rel=1e-4)


@pytest.mark.parametrize(
    ("noise_steps", "steps", "at"),
    [
        (1000, 4, [999, 749, 499, 249]),
        (1000, 1, [999]),
        (10, 3, [9, 6, 2]),
        (5, 5, [4, 3, 2, 1, 0]),
    ],
)
def test_the_way_back_begins_at_the_last_step_and_is_even(noise_steps, steps, at):
    assert sampler.visited(noise_steps, steps).tolist() == at


def test_two_steps_come_to_what_was_worked_out_by_hand():
    """Half of what is there is taken for noise.

    First step, a = 0.25, b = 0.81: noise 0.5; picture (1 - sqrt(0.75) 0.5) / 0.5 = 1.13, held to 1;
    next 0.9 + sqrt(0.19) 0.5 = 1.1179449. Second, a = 0.81, b = 1: noise 0.5589725; picture
    (1.1179449 - sqrt(0.19) 0.5589725) / 0.9 = 0.9714383.
    """
    found = sampler.ddim(lambda x, _: x / 2, jnp.ones((1, 1)), np.array([0.81, 0.25]), 2)
    assert float(found[0, 0]) == pytest.approx(0.9714383, abs=1e-6)


def reference(denoise, x, signal, steps):
    """As in the paper, one step after the other."""
    at = [int(np.round((i + 1) * len(signal) / steps)) - 1 for i in range(steps)]
    while at:
        t = at.pop()
        a, b = signal[t], signal[at[-1]] if at else 1.0
        noise = denoise(x, t)
        picture = np.clip((x - (1 - a) ** 0.5 * noise) / a**0.5, -1, 1)
        x = b**0.5 * picture + (1 - b) ** 0.5 * noise
    return x


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_many_steps_come_to_what_numpy_does(steps):
    signal = np.linspace(0.99, 0.01, 20)
    noise = np.random.default_rng(1).normal(size=(3, 4, 4, 3))

    def denoise(x, t):
        return 0.5 * x + 0.01 * t - 0.1

    wanted = reference(denoise, noise, signal, steps)

    def of_each(x, t_b):
        return denoise(x, t_b[:, None, None, None])

    np.testing.assert_allclose(
        sampler.ddim(of_each, jnp.asarray(noise), signal, steps), wanted, atol=2e-5
    )


@settings(max_examples=12)  # each is compiled
@given(steps=st.integers(1, 30))
def test_who_knows_the_picture_finds_it_in_any_number_of_steps(steps):
    signal = np.linspace(0.99, 0.01, 30)
    rng = np.random.default_rng(0)
    picture, noise = rng.uniform(-1, 1, (2, 5)), rng.normal(size=(2, 5))

    def denoise(x, t_b):
        a = jnp.asarray(signal, jnp.float32)[t_b][:, None]
        return (x - a**0.5 * picture) / (1 - a) ** 0.5

    found = sampler.ddim(denoise, jnp.asarray(noise), signal, steps)
    np.testing.assert_allclose(found, picture, atol=1e-3)


@pytest.mark.parametrize(("scale", "noise"), [(0, 1.0), (1, 2.0), (3, 4.0), (0.5, 1.5)])
def test_guidance_moves_on_from_without_the_text_to_with_it(scale, noise):
    assert sampler.guided(jnp.array(2.0), jnp.array(1.0), scale) == noise


def test_noise_is_normal_and_of_its_seed_and_number_alone():
    def drawn(*rows):
        seeds, indices = (jnp.array(column) for column in zip(*rows, strict=True))
        return np.asarray(sampler.noise_of(seeds, indices, (64, 64)))

    first, second, other = drawn((5, 0), (5, 1), (6, 0))
    np.testing.assert_array_equal(drawn((9, 9), (5, 0))[1], first)
    assert abs(np.corrcoef([first.ravel(), second.ravel(), other.ravel()]) - np.eye(3)).max() < 0.1
    assert (first.mean(), first.std()) == (pytest.approx(0, abs=0.05), pytest.approx(1, abs=0.05))
