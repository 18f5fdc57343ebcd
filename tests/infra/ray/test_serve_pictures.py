"""A RayService of engine diffusion: its application, its chips, its model and its key."""

import yaml

from infra.gke.identity import READ, WRITE, bucket_roles
from infra.preflight.programs import Unknown, subjects
from tests.infra.ray.stacks import cluster_of, gke, made

PAINT = {
    "name": "paint",
    "kind": "serve",
    "slice": "paint",
    "engine": "diffusion",
    "model": {"path": "gs://acme-ml-models/paint"},
    "sampler": {"steps": 30},
    "api_key": "sk-1",
}
SLICE = {"name": "paint", "machine_type": "ct6e-standard-4t", "topology": "2x2", "count": 2}


def stack():
    return gke([SLICE], [PAINT])


def test_each_replica_is_told_its_slice_and_how_to_draw():
    manifest = made(stack())["RayService/paint"].manifest
    (group,) = cluster_of(manifest)["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    assert (group["replicas"], group["numOfHosts"]) == (2, 1)
    assert container["resources"]["limits"]["google.com/tpu"] == "4"
    assert "/model" in [mount["mountPath"] for mount in container["volumeMounts"]]
    (application,) = yaml.safe_load(manifest["spec"]["serveConfigV2"])["applications"]
    assert application["import_path"] == "workloads.serve.diffusion.app:build"
    args = application["args"]
    assert args["settings"]["sampler"] == {"steps": 30, "guidance_scale": 5.0}
    assert (args["model"], args["replicas"], args["slice"]["topology"]) == ("/model", 2, "2x2")
    assert args["api_key_file"].endswith("/api-key")


def test_it_reads_its_model_and_keeps_what_was_compiled():
    roles = bucket_roles(stack(), stack().workload("paint"))
    (cache,) = (bucket for bucket in roles if bucket.endswith("cache"))
    assert roles == {"acme-ml-models": {READ}, cache: {WRITE}}


def test_preflight_says_that_it_is_not_compiled():
    assert list(subjects(stack())) == [
        Unknown("raytpu:workloads[0]", "paint draws pictures, which is not compiled here")
    ]
