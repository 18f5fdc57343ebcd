"""Ray Serve's own configuration of a served model, as the YAML text that a RayService holds."""

from dataclasses import asdict
from typing import Any

from infra.config import ServeSpec, StackConfig
from infra.ray import places, secrets
from infra.ray.text import to_yaml

BUILDERS = {
    "jax": "workloads.serve.app:build",
    "vllm": "workloads.serve.vllm:build",
    "diffusion": "workloads.serve.diffusion.app:build",
}
"""Of the application, by engine."""


def serve_config(config: StackConfig, workload: ServeSpec) -> str:
    """Chips are asked for by the builder, which is told the slice: by hosts, topology included."""
    application = {
        "name": workload.name,
        "route_prefix": "/",
        "import_path": BUILDERS[workload.engine],
        "args": application_args(config, workload),
    }
    return to_yaml({"applications": [application]})


def application_args(config: StackConfig, workload: ServeSpec) -> dict[str, Any]:
    args = {
        **slice_args(config, workload),
        "settings": workload.settings().model_dump(mode="json"),
        "model": places.model(workload),
        "model_name": workload.name,
        "replicas": workload.replica(config.slice(workload.slice)).count,
    }
    if workload.api_key:
        args["api_key_file"] = f"{secrets.SECRETS_PATH}/{secrets.API_KEY_FILE}"
    return args


def slice_args(config: StackConfig, workload: ServeSpec) -> dict[str, Any]:
    """What each replica runs on: a slice, or a part of one."""
    tpu = config.slice(workload.slice)
    part = {"parent_topology": tpu.topology} if workload.replica_topology else {}
    return {"slice": asdict(workload.replica(tpu).contract()), **part}
