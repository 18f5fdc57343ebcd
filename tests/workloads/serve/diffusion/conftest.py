"""A small diffusion model of random weights, in its folder."""

import pytest

SIZES = {
    "image_size": 8,
    "patch_size": 4,
    "hidden_size": 32,
    "layers": 1,
    "attention_heads": 2,
    "text_length": 12,
}


@pytest.fixture(scope="session")
def noise_folder(tmp_path_factory):
    from workloads.serve.diffusion import new

    folder = tmp_path_factory.mktemp("diffusion") / "noise"
    new.write(folder, seed=3, **SIZES)
    return folder
