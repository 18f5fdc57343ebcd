"""From noise to a picture: DDIM (arXiv 2010.02502) without added noise, and guidance by the text.

What takes the noise out is a function, so that one can be put in whose answer is known.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from workloads.serve.diffusion.config import DiffusionConfig

Denoise = Callable[[jax.Array, jax.Array], jax.Array]
"""Of pictures (b, ...) and the step that each has come to (b,): the noise in them."""


def kept_signal(config: DiffusionConfig) -> np.ndarray:
    """Part of the picture's variance that is left after each step of noise, in float64."""
    betas = np.linspace(config.first_beta, config.last_beta, config.noise_steps)
    return np.cumprod(1.0 - betas)


def visited(noise_steps: int, steps: int) -> np.ndarray:
    """Steps of noise that `steps` of DDIM go back through, from the last one on, evenly.

    The last one comes first: a start at an earlier one would take pure noise for less than that
    (arXiv 2305.08891).
    """
    ends = np.arange(steps, 0, -1) * noise_steps / steps
    return np.round(ends).astype(np.int32) - 1


def ddim(denoise: Denoise, noise: jax.Array, signal: np.ndarray, steps: int) -> jax.Array:
    """The pictures, from -1 to 1, that `denoise` finds in `noise`. Compiled as one loop."""
    at = visited(len(signal), steps)
    left = signal[at]
    next_left = np.append(left[1:], 1.0)
    plan = (at, left.astype(np.float32), next_left.astype(np.float32))

    def step(x: jax.Array, now: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        t, a, b = now
        found = denoise(x, jnp.full(x.shape[0], t)).astype(jnp.float32)
        # Held to what a picture can be: an early guess is off by far, and would carry on.
        picture = jnp.clip((x - jnp.sqrt(1 - a) * found) / jnp.sqrt(a), -1.0, 1.0)
        return jnp.sqrt(b) * picture + jnp.sqrt(1 - b) * found, None

    return jax.lax.scan(step, noise, tuple(map(jnp.asarray, plan)))[0]


def guided(told: jax.Array, untold: jax.Array, scale: float) -> jax.Array:
    """The noise found with the text, moved on from that found without (arXiv 2207.12598)."""
    return untold + scale * (told - untold)


def noise_of(seeds_b: jax.Array, indices_b: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Noise (b, *shape): of each row by its seed and its number among the pictures of a request."""

    def one(seed: jax.Array, index: jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.fold_in(jax.random.key(seed), index), shape)

    return jax.vmap(one)(seeds_b, indices_b)
