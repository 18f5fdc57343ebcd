"""Workloads that stay: Serve applications, deployed through REST, as KubeRay's RayService does."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pulumi
from pulumi.dynamic import (
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)

from infra.errors import LocalError
from infra.local import engine, ports
from infra.local.cluster import GONE
from infra.local.provider import Props, changed, urn, user_errors
from infra.local.ray_api import RayApi
from infra.ray.serve_config import BUILDERS

DEPLOY_TIMEOUT_S = 1200.0
"""Five processes of vLLM import it one after the other: minutes on two cores."""
ANSWER_TIMEOUT_S = 30.0
_FAILED = ("DEPLOY_FAILED", "UNHEALTHY")
_ANSWERS_AT = {
    BUILDERS["jax"]: "/health",
    BUILDERS["vllm"]: "/v1/models",
    BUILDERS["diffusion"]: "/health",
}


class _ServeProvider(ResourceProvider):
    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        keys = ["dashboard_url", "applications", "api_keys", "version", "wanted_port"]
        return DiffResult(changes=bool(changed(_olds, _news, keys)))

    @user_errors
    def create(self, props: Props) -> CreateResult:
        return CreateResult("serve", _deploy(props))

    @user_errors
    def update(self, _id: str, _olds: Props, _news: Props) -> UpdateResult:
        return UpdateResult(_deploy(_news))

    @user_errors
    def read(self, id_: str, props: Props) -> ReadResult:
        try:
            deployed = RayApi(props["dashboard_url"]).applications()
        except LocalError:
            return GONE
        wanted = {application["name"] for application in _applications(props)}
        return ReadResult(id_, props) if wanted <= set(deployed) else GONE

    @user_errors
    def delete(self, _id: str, _props: Props) -> None:
        write_keys({}, Path(_props["key_folder"]))
        try:
            RayApi(_props["dashboard_url"]).delete_applications()
        except LocalError:
            return  # the cluster is gone, and Serve with it


class ServeApplications(Resource, module="local", name="ServeApplications"):
    """All applications of the stack: Serve's interface takes the whole set at once."""

    urls: pulumi.Output[dict[str, str]]
    """Base address of each application, for an OpenAI client."""

    def __init__(
        self,
        name: str,
        *,
        dashboard_url: pulumi.Input[str],
        applications: Sequence[Mapping[str, Any]],
        api_keys: Mapping[str, pulumi.Input[str]],
        key_folder: str,
        version: pulumi.Input[str],
        port: int | None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`version`: changes with code and weights.

        `api_keys`: by application. Each is handed on in a file that only this user can read.
        """
        props = {
            "dashboard_url": dashboard_url,
            # As text: Pulumi carries every number as a float, and Serve's arguments have integers.
            "applications": json.dumps(applications),
            "api_keys": dict(api_keys),
            "key_folder": key_folder,
            "version": version,
            "wanted_port": port,
            "urn": urn(self, name),
            "urls": None,
        }
        super().__init__(_ServeProvider(), name, props, opts)


def _deploy(props: Props) -> Props:
    """Deploys and waits until each application answers; the props with their addresses."""
    api = RayApi(props["dashboard_url"])
    port = _port(api, props.get("wanted_port"))
    keys = {path: props["api_keys"][name] for name, path in _key_files(props).items()}
    write_keys(keys, Path(props["key_folder"]))
    api.deploy(
        {
            "proxy_location": "HeadOnly",  # all nodes share one address here, so one can listen
            "http_options": {"host": ports.LOOPBACK, "port": port},
            "applications": [with_keys(app, props) for app in _applications(props)],
        }
    )
    _wait_running(api, props)
    base = f"http://{ports.LOOPBACK}:{port}"
    urls = {app["name"]: base + app["route_prefix"].rstrip("/") for app in _applications(props)}
    for app in _applications(props):
        url = urls[app["name"]] + _ANSWERS_AT[app["import_path"]]
        what = f"{app['name']} to answer at {url}"
        api.wait_for(lambda url=url: _answers(url), ANSWER_TIMEOUT_S, what)
    return {**props, "urls": {name: f"{url}/v1" for name, url in urls.items()}}


def _port(api: RayApi, wanted: float | None) -> int:
    """The port Serve listens on already; else, or if another is wanted now, a new one.

    Serve takes its port when it starts and ignores a later one, so it has to end for another.
    """
    running = api.serve_port()
    if running is not None and wanted in (None, running):
        return running
    port = ports.choose(wanted, "raytpu:cluster.serve_port")
    if running is not None:
        api.delete_applications()
    return port


def _applications(props: Props) -> list[dict[str, Any]]:
    return json.loads(props["applications"])


def with_keys(application: Mapping[str, Any], props: Props) -> dict[str, Any]:
    """As Serve takes it: with the file of its API key, and restarted with each new version."""
    key_file = _key_files(props).get(application["name"])
    args = {**application["args"], "api_key_file": str(key_file) if key_file else None}
    environment = application["runtime_env"]
    variables = {**environment.get("env_vars", {}), "RAYTPU_VERSION": props["version"]}
    return {**application, "args": args, "runtime_env": {**environment, "env_vars": variables}}


def _key_files(props: Props) -> dict[str, Path]:
    return {name: Path(props["key_folder"]) / f"{name}.key" for name in props["api_keys"]}


def write_keys(files: Mapping[Path, str], folder: Path) -> None:
    """Makes `folder` hold these keys, each for its owner's eyes only, and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in {*folder.glob("*.key")} - {*files}:
        stale.unlink()
    for path, key in files.items():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(key)


def _wait_running(api: RayApi, props: Props) -> None:
    wanted = {application["name"] for application in _applications(props)}
    reported: set[str] = set()

    def running() -> bool:
        engine.check_cancelled()
        states = {name: app for name, app in api.applications().items() if name in wanted}
        for name, app in states.items():
            if app["status"] in _FAILED:
                raise LocalError(f"application {name} {app['status']}: {_reason(app)}")
            line = f"{name}: {app['status'].lower()}"
            if line not in reported:
                reported.add(line)
                engine.report(props["urn"], line)
        return len(states) == len(wanted) and all(
            app["status"] == "RUNNING" for app in states.values()
        )

    api.wait_for(running, DEPLOY_TIMEOUT_S, f"{', '.join(sorted(wanted))} to run")


def _reason(application: Mapping[str, Any]) -> str:
    """The last line of Serve's message, or of a deployment's: the exception, not its traceback."""
    deployments = application.get("deployments", {}).values()
    messages = [application.get("message", ""), *(d.get("message", "") for d in deployments)]
    lines = [line.strip() for text in messages for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "Serve gives no reason; look at its log"


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).is_success
    except httpx.HTTPError:
        return False
