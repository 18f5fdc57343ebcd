"""What is drawn, on eight devices of one process: by which request, and by nothing else."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from workloads.model.config import ModelError
from workloads.model.sharding import make_mesh
from workloads.serve.diffusion import weights
from workloads.serve.diffusion.config import read_config
from workloads.serve.diffusion.engine import Picture
from workloads.serve.diffusion.model import cut, join
from workloads.serve.diffusion.pictures import Pictures
from workloads.settings import MeshSettings, SamplerSettings

PROMPT, OTHER = (70, 12, 9), (1, 2, 3, 4)


def mesh_of(devices):
    return make_mesh(MeshSettings(data=len(devices)), devices)


@pytest.fixture(scope="module")
def pictures(devices, noise_folder):
    def made(count=8, scale=3.0, dtype="float32"):
        mesh = mesh_of(devices[:count])
        model = weights.load(noise_folder, mesh, dtype=dtype)
        how = SamplerSettings(steps=4, guidance_scale=scale)
        return Pictures(model, mesh, rows=8, how=how)

    return made


@pytest.fixture(scope="module")
def on_eight(pictures):
    return pictures()


def apart(ours, theirs):
    """Levels of 255 between two pictures, where they differ most."""
    return abs(ours.astype(int) - theirs).max()


def test_a_picture_is_of_its_prompt_seed_and_number(on_eight):
    asked = [
        Picture(PROMPT, 5, 0),
        Picture(PROMPT, 5, 1),
        Picture(PROMPT, 6, 0),
        Picture(OTHER, 5, 0),
    ]
    first, *others = on_eight.draw(asked)
    assert (first.shape, first.dtype) == ((8, 8, 3), np.uint8)
    assert all(apart(first, other) > 20 for other in others)


def test_a_picture_is_the_same_whatever_else_is_drawn_and_in_which_row(on_eight):
    one = Picture(PROMPT, 5, 0)
    alone = on_eight.draw([one])[0]
    among = on_eight.draw([Picture(OTHER, i, i) for i in range(7)] + [one])
    np.testing.assert_array_equal(among[7], alone)


@pytest.mark.parametrize("count", [1, 2])
def test_a_picture_is_the_same_however_many_devices_share_the_batch(on_eight, pictures, count):
    asked = [Picture(PROMPT, 5, i) for i in range(3)]
    pairs = zip(on_eight.draw(asked), pictures(count).draw(asked), strict=True)
    assert all(apart(ours, theirs) <= 1 for ours, theirs in pairs)


def test_each_device_draws_its_part_of_a_batch(on_eight):
    rows = (8, 12)
    zeros = np.zeros(8, np.int32)
    drawn = on_eight._program(  # noqa: SLF001 (draw() gives it no more)
        on_eight._params,  # noqa: SLF001
        np.zeros(rows, np.int32),
        zeros,
        zeros.astype(np.uint32),
        zeros,
    )
    assert {shard.data.shape[0] for shard in drawn.addressable_shards} == {1}
    assert len({shard.device for shard in drawn.addressable_shards}) == 8


def test_a_scale_of_one_is_the_text_alone_and_of_none_is_without_it(pictures):
    asked = [Picture(PROMPT, 5, 0), Picture(OTHER, 5, 0)]
    alone, guided = pictures(scale=1.0).draw(asked), pictures(scale=1.000001).draw(asked)
    assert max(map(apart, alone, guided)) <= 1
    first, second = pictures(scale=0.0).draw(asked)
    np.testing.assert_array_equal(first, second)
    assert apart(first, alone[0]) > 20


def test_bfloat16_draws_too(pictures):
    assert pictures(dtype="bfloat16").draw([Picture(PROMPT, 5, 0)])[0].std() > 10


def test_what_is_behind_the_end_of_a_prompt_counts_for_nothing(devices, noise_folder):
    model = weights.load(noise_folder, mesh_of(devices[:1]), dtype="float32")
    sizes, steps = jnp.array([3]), jnp.array([500])
    x = jax.random.normal(jax.random.key(0), (1, 8, 8, 3))

    @jax.jit
    def noise_by(tokens):
        return model(x, steps, *model.read(tokens, sizes))

    def noise(rest):
        return noise_by(jnp.array([[*PROMPT, *rest]]))

    np.testing.assert_allclose(noise([0] * 9), noise([200] * 9), rtol=0, atol=1e-6)


def test_patches_are_squares_and_go_back_to_where_they_were():
    picture = jnp.arange(2 * 8 * 8 * 3).reshape(2, 8, 8, 3)
    patches = cut(picture, 4)
    assert patches.shape == (2, 4, 48)
    np.testing.assert_array_equal(patches[1, 2].reshape(4, 4, 3), picture[1, 4:, :4])
    np.testing.assert_array_equal(join(patches, 4), picture)


def test_weights_that_were_saved_draw_the_same(devices, noise_folder, tmp_path):
    config, mesh = read_config(noise_folder), mesh_of(devices[:1])
    how, asked = SamplerSettings(steps=4), [Picture(PROMPT, 5, 0)]
    model = weights.new(config, seed=8)
    drawn = Pictures(model, mesh, rows=1, how=how).draw(asked)
    tokenizer = noise_folder / "tokenizer.json"
    weights.save(model, tmp_path / "saved", tokenizer_json=tokenizer)
    again = weights.load(tmp_path / "saved", mesh, dtype="float32")
    np.testing.assert_array_equal(Pictures(again, mesh, rows=1, how=how).draw(asked), drawn)
    assert read_config(tmp_path / "saved") == config


def spoilt(noise_folder, tmp_path, change):
    folder = shutil.copytree(noise_folder, tmp_path / "spoilt")
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_weights_of_another_shape_are_named_all_at_once(devices, noise_folder, tmp_path):
    def change(tensors):
        del tensors["patch_in.bias"]
        tensors["patch_out.bias"] = np.zeros(7, np.float32)
        tensors["norm.scale"] = np.zeros(32, np.int32)
        tensors["vae.weight"] = np.zeros(1, np.float32)

    folder = spoilt(noise_folder, tmp_path, change)
    with pytest.raises(ModelError) as caught:
        weights.load(folder, mesh_of(devices[:1]), dtype="float32")
    assert sorted(caught.value.faults) == [
        "norm.scale is stored as int32, which is no floating point",
        "patch_in.bias is missing",
        "patch_out.bias is (7,), but config.json makes it (48,)",
        "vae.weight is unexpected",
    ]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_bytes(b"no weights"), "is damaged or not safetensors"),
    ],
)
def test_weights_that_cannot_be_read_are_named(devices, noise_folder, tmp_path, spoil, told):
    folder = shutil.copytree(noise_folder, tmp_path / "spoilt")
    spoil(folder / "model.safetensors")
    with pytest.raises(ModelError, match=told):
        weights.load(folder, mesh_of(devices[:1]), dtype="float32")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model_type": "qwen3"}, ["model_type is 'qwen3'; only 'raytpu-diffusion' is supported"]),
        (
            {"patch_size": 3, "attention_heads": 3},
            ["patch_size 3 does not divide 8", "hidden_size 32 is no multiple of twice 3"],
        ),
        (
            {"trained": None, "layers": 0, "heads": 2},
            ["trained: ", "layers: Input should be greater", "heads: Extra inputs"],
        ),
    ],
)
def test_a_config_that_cannot_be_drawn_by_is_refused_with_all_its_faults(
    noise_folder, tmp_path, change, told
):
    config = json.loads((noise_folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ModelError) as caught:
        read_config(tmp_path)
    assert all(part in str(caught.value) for part in told)
