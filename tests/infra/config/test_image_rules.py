"""Serving of pictures as a stack declares it: what fits, and what is refused at once."""

import json

import pytest

from infra.config import ServeSpec
from tests.infra.config.stack import changed, faults, on_gke, only, read
from workloads.settings import MeshSettings

PAINT = {
    "name": "paint",
    "kind": "serve",
    "slice": "paint",
    "engine": "diffusion",
    "sampler": {"steps": 30},
}
SLICE = {"name": "paint", "machine_type": "ct5lp-hightpu-4t", "topology": "2x2"}
BUCKET = {"path": "gs://acme-ml-models/paint"}


@pytest.fixture
def folder(tmp_path):
    config = {"model_type": "raytpu-diffusion", "trained": True, "vocab_size": 256}
    (tmp_path / "config.json").write_text(json.dumps(config | {"noise_steps": 100}))
    return {"path": str(tmp_path)}


def local(folder, *, slice_=SLICE, **changes):
    return changed(slices__2=slice_, workloads__3={**PAINT, "model": folder, **changes})


def gke(**changes):
    return on_gke(slices__2=SLICE, workloads__3={**PAINT, "model": BUCKET, **changes})


def test_a_sound_server_is_taken_locally_and_on_gke(folder):
    assert faults(local(folder)) == []
    secret = gke(api_key="sk-1")
    assert faults(secret, secret_keys=["raytpu:workloads"]) == []


def test_by_default_each_chip_has_the_model_and_draws_a_part_of_a_batch(folder):
    paint = read(local(folder)).workload("paint")
    assert isinstance(paint, ServeSpec)
    assert paint.settings().mesh_on(4) == MeshSettings(data=4)


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"mesh": {"tensor": 4}}, "mesh.tensor", "4 chips would share one copy of the model"),
        ({"max_batch": 6}, "max_batch", "6 is no multiple of mesh axis data, which is 4"),
        (
            {"max_sequence_length": 128},
            "max_sequence_length",
            "128 is not asked by engine diffusion",
        ),
        ({"replica_topology": "2x2"}, "replica_topology", "'2x2' is no whole slice"),
        (
            {"slice_": {**SLICE, "topology": "4x4"}, "max_batch": 16},
            "slice",
            "'paint' is 4x4 on ct5lp-hightpu-4t, of 4 hosts, and engine diffusion draws on one",
        ),
        ({"model": "pretrain"}, "model", "'pretrain' trains a model of text"),
        ({"model": {"path": "/none"}}, "model.path", "holds no diffusion model: /none/config.json"),
        ({"sampler": {"steps": 101}}, "sampler.steps", "101 is more than the 100 steps of noise"),
        ({"sampler": {"steps": 0}}, "sampler.steps", "use 1 or more"),
        ({"sampler": {"guidance": 2}}, "sampler.guidance", "did you mean guidance_scale?"),
        ({"engine": "difusion"}, "engine", "use 'jax', 'vllm' or 'diffusion'"),
        ({"engine": "jax"}, "sampler", "is of engine diffusion, and this one is jax"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_place(folder, changes, where, words):
    assert words in only(faults(local(folder, **changes)), f"workloads[3].{where}")


def test_a_model_of_the_hub_is_refused():
    told = only(faults(gke(model={"hub": "acme/paint"})), "workloads[3].model.hub")
    assert "'acme/paint' cannot be loaded by engine diffusion" in told


def test_a_folder_of_a_text_model_is_refused(folder, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    told = only(faults(local(folder)), "workloads[3].model.path")
    assert "model_type is 'qwen3'; only 'raytpu-diffusion' is supported" in told
