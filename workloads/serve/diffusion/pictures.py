"""Pictures that a slice draws together: one compiled program, from prompts to pixels.

Its shapes never change, so nothing is compiled after `warm_up`; a batch that is not full is drawn
all the same. Devices share the rows of a batch; what a row becomes does not depend on the others.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from workloads.model.qwen3 import DATA
from workloads.model.sharding import make_mesh
from workloads.serve import compiled
from workloads.serve.diffusion import sampler, weights
from workloads.serve.diffusion.config import DiffusionConfig
from workloads.serve.diffusion.engine import Picture
from workloads.serve.diffusion.model import CHANNELS, Denoiser
from workloads.settings import MeshSettings, SamplerSettings, ServeSettings


class Pictures:
    """`rows` of them at once, on all devices of `mesh`."""

    def __init__(self, model: Denoiser, mesh: Mesh, *, rows: int, how: SamplerSettings) -> None:
        self.rows = rows
        self._length = model.config.text_length
        graph, self._params = nnx.split(model)
        self._program = make_program(graph, model.config, mesh, how)

    def warm_up(self) -> None:
        """Compile the program, or find it where it was kept."""
        with compiled.told():
            self.draw([Picture((), 0, 0)])

    def draw(self, asked: Sequence[Picture]) -> list[np.ndarray]:
        """Pixels (height, width, 3) in uint8 of each, of at most `rows`."""
        tokens = np.zeros((self.rows, self._length), np.int32)
        sizes, indices = np.zeros((2, self.rows), np.int32)
        seeds = np.zeros(self.rows, np.uint32)
        for row, one in enumerate(asked):
            tokens[row, : len(one.tokens)] = one.tokens
            sizes[row], indices[row] = len(one.tokens), one.index
            seeds[row] = one.seed & 0xFFFF_FFFF
        drawn = self._program(self._params, tokens, sizes, seeds, indices)
        return list(np.asarray(drawn)[: len(asked)])


def make_program(graph: Any, config: DiffusionConfig, mesh: Mesh, how: SamplerSettings) -> Any:
    """Of parameters, padded prompts, their sizes, and each row's seed and index: the pixels.

    Jitted, and not compiled yet.
    """
    signal, shape = sampler.kept_signal(config), (config.image_size, config.image_size, CHANNELS)

    def program(
        params: nnx.State, tokens: jax.Array, sizes: jax.Array, seeds: jax.Array, indices: jax.Array
    ) -> jax.Array:
        denoiser = nnx.merge(graph, params)
        text = denoiser.read(tokens, sizes)
        no_text = denoiser.read(jnp.zeros_like(tokens), jnp.zeros_like(sizes))

        def denoise(x: jax.Array, at: jax.Array) -> jax.Array:
            told = denoiser(x, at, *text)
            if how.guidance_scale == 1:  # the text alone, for half of the work
                return told
            return sampler.guided(told, denoiser(x, at, *no_text), how.guidance_scale)

        noise = sampler.noise_of(seeds, indices, shape)
        drawn = sampler.ddim(denoise, noise, signal, how.steps)
        return jnp.round((drawn + 1) * 127.5).astype(jnp.uint8)

    cut = NamedSharding(mesh, P(DATA))
    places = (NamedSharding(mesh, P()), cut, cut, cut, cut)
    return jax.jit(program, in_shardings=places, out_shardings=cut)


def load(folder: Path, settings: ServeSettings, axes: MeshSettings) -> Pictures:
    """Of the model in `folder`, over every device that JAX sees. Raises ModelError."""
    compiled.keep()
    mesh = make_mesh(axes)
    model = weights.load(folder, mesh, dtype=jnp.dtype(settings.dtype))
    return Pictures(model, mesh, rows=settings.max_batch, how=settings.sampler_used)
