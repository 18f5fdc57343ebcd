"""Workloads that stay: Serve applications, deployed through REST, as KubeRay's RayService does."""

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

DEPLOY_TIMEOUT_S = 600.0
ANSWER_TIMEOUT_S = 30.0
_FAILED = ("DEPLOY_FAILED", "UNHEALTHY")


class _ServeProvider(ResourceProvider):
    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        keys = ["dashboard_url", "applications", "api_keys", "version", "wanted_port"]
        return DiffResult(changes=bool(changed(_olds, _news, keys)))

    @user_errors
    def create(self, props: Props) -> CreateResult:
        return CreateResult("serve", _deploy(props, None))

    @user_errors
    def update(self, _id: str, _olds: Props, _news: Props) -> UpdateResult:
        return UpdateResult(_deploy(_news, _olds))

    @user_errors
    def read(self, id_: str, props: Props) -> ReadResult:
        try:
            deployed = RayApi(props["dashboard_url"]).applications()
        except LocalError:
            return GONE
        wanted = {application["name"] for application in props["applications"]}
        return ReadResult(id_, props) if wanted <= set(deployed) else GONE

    @user_errors
    def delete(self, _id: str, _props: Props) -> None:
        for path in _key_files(_props).values():
            path.unlink(missing_ok=True)
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
        applications: Sequence[pulumi.Input[Mapping[str, Any]]],
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
            "applications": list(applications),
            "api_keys": dict(api_keys),
            "key_folder": key_folder,
            "version": version,
            "wanted_port": port,
            "urn": urn(self, name),
            "urls": None,
        }
        super().__init__(_ServeProvider(), name, props, opts)


def _deploy(props: Props, olds: Props | None) -> Props:
    """Deploys and waits until each application answers; the props with their addresses."""
    api = RayApi(props["dashboard_url"])
    port = _port(props, olds)
    _write_keys(props)
    api.deploy(
        {
            "proxy_location": "HeadOnly",  # all nodes share one address here, so one can listen
            "http_options": {"host": ports.LOOPBACK, "port": port},
            "applications": [_application(app, props) for app in props["applications"]],
        }
    )
    _wait_running(api, props)
    base = f"http://{ports.LOOPBACK}:{port}"
    urls = {app["name"]: base + app["route_prefix"].rstrip("/") for app in props["applications"]}
    for name, url in urls.items():
        api.wait_for(lambda url=url: _answers(url), ANSWER_TIMEOUT_S, f"{name} to answer at {url}")
    return {**props, "port": port, "urls": {name: f"{url}/v1" for name, url in urls.items()}}


def _port(props: Props, olds: Props | None) -> int:
    """The port of before while Serve still holds it; else the wanted or a free one."""
    if olds and not changed(olds, props, ["dashboard_url", "wanted_port"]):
        return int(olds["port"])
    return ports.choose(props.get("wanted_port"), "raytpu:cluster.serve_port")


def _application(application: Mapping[str, Any], props: Props) -> dict[str, Any]:
    key_file = _key_files(props).get(application["name"])
    args = {**application["args"], "api_key_file": str(key_file) if key_file else None}
    # Serve restarts an application whose definition changed: so new code or weights are taken up.
    environment = {"env_vars": {"RAYTPU_VERSION": props["version"]}}
    return {**application, "args": args, "runtime_env": environment}


def _key_files(props: Props) -> dict[str, Path]:
    return {name: Path(props["key_folder"]) / f"{name}.key" for name in props["api_keys"]}


def _write_keys(props: Props) -> None:
    for name, path in _key_files(props).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(props["api_keys"][name])


def _wait_running(api: RayApi, props: Props) -> None:
    wanted = {application["name"] for application in props["applications"]}
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
        return httpx.get(f"{url}/health", timeout=5, trust_env=False).is_success
    except httpx.HTTPError:
        return False
