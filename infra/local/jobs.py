"""A workload that ends: submitted through Ray's Jobs interface, as KubeRay's RayJob does."""

import json
import re
import time
from collections import deque
from pathlib import Path
from typing import Any

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
from infra.local import engine
from infra.local.cluster import GONE
from infra.local.provider import Props, changed, urn, user_errors
from infra.local.ray_api import ENDED, RayApi

QUIET_LIMIT_S = 900.0
"""A job that logs nothing for so long is taken for hung."""

_END_TIMEOUT_S = 60.0
_POLL_S = 1.0
_LAST_LINES = 12
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PROGRESS = re.compile(r"raytpu \| (.*)")
_ERROR = re.compile(r"raytpu \| error: (.*)")
_WHAT_IT_DOES = ("entrypoint", "version", "result_file")


class _JobProvider(ResourceProvider):
    serialize_as_secret_always = False

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        return DiffResult(changes=bool(changed(_olds, _news, _WHAT_IT_DOES)))

    @user_errors
    def create(self, props: Props) -> CreateResult:
        return CreateResult(props["job"], _run(props))

    @user_errors
    def update(self, _id: str, _olds: Props, _news: Props) -> UpdateResult:
        return UpdateResult(_run(_news))

    @user_errors
    def read(self, id_: str, props: Props) -> ReadResult:
        return ReadResult(id_, props) if Path(props["result_file"]).is_file() else GONE

    def delete(self, _id: str, _props: Props) -> None:
        """Its results stay: what was trained is worth more than the cluster that trained it."""


class RayJob(Resource, module="local", name="RayJob"):
    """Runs again when its command, its version or its result file changes."""

    result: pulumi.Output[dict[str, Any]]
    """What the job wrote to its result file."""

    def __init__(
        self,
        name: str,
        *,
        job: str,
        dashboard_url: pulumi.Input[str],
        entrypoint: str,
        version: pulumi.Input[str],
        result_file: str,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`version`: changes with code and data. `result_file`: JSON that the job writes last."""
        props = {
            "job": job,
            "dashboard_url": dashboard_url,
            "entrypoint": entrypoint,
            "version": version,
            "result_file": result_file,
            "urn": urn(self, name),
            "result": None,
        }
        super().__init__(_JobProvider(), name, props, opts)


def _run(props: Props) -> Props:
    """Runs the job to its end; its props with the result. Raises LocalError with its last lines."""
    api, name = RayApi(props["dashboard_url"]), props["job"]
    job_id = f"{name}-{time.time_ns() // 10**6}"
    _stop_earlier(api, name)
    api.submit(job_id, props["entrypoint"])
    try:
        log = _follow(api, job_id, props["urn"])
        job = _ended(api, job_id)
    except LocalError:
        api.stop(job_id)
        raise
    if job["status"] != "SUCCEEDED":
        raise LocalError(f"job {job_id} {job['status'].lower()}: {_reason(log, job)}")
    return {**props, "result": _result(Path(props["result_file"]), job_id)}


def _stop_earlier(api: RayApi, name: str) -> None:
    """Stops the job of an interrupted run that may still write to the same folder."""
    running = [
        job["submission_id"]
        for job in api.jobs()
        if str(job.get("submission_id")).rpartition("-")[0] == name and job["status"] not in ENDED
    ]
    for job_id in running:
        api.stop(job_id)
        _ended(api, job_id)


def _follow(api: RayApi, job_id: str, urn_: str) -> list[str]:
    """Shows the job's progress until its log ends; the last lines of the log."""
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    heard = time.monotonic()
    for chunk in api.job_log(job_id, _POLL_S):
        engine.check_cancelled()
        if chunk is None and time.monotonic() - heard > QUIET_LIMIT_S:
            minutes = QUIET_LIMIT_S / 60
            raise LocalError(f"job {job_id} logged nothing for {minutes:.0f} min; it was stopped")
        if chunk is None:
            continue
        heard = time.monotonic()
        for line in filter(str.strip, _ANSI.sub("", chunk).splitlines()):
            last_lines.append(line.strip())
            if progress := _PROGRESS.search(line):
                engine.report(urn_, progress[1])
    return list(last_lines)


def _reason(log: list[str], job: dict[str, Any]) -> str:
    """What the workload says is wrong, one after the other; else the end of its log."""
    errors = [found[1] for line in log if (found := _ERROR.search(line))]
    return "; ".join(errors) or " | ".join(log) or job.get("message") or "it logged nothing"


def _ended(api: RayApi, job_id: str) -> dict[str, Any]:
    """The job's last word. Its log may end a moment before its status does."""
    ended: list[dict[str, Any]] = []

    def done() -> bool:
        job = api.job(job_id)
        if job is None:
            raise LocalError(f"Ray no longer knows job {job_id}; run `pulumi refresh`, then `up`")
        ended.append(job)
        return job["status"] in ENDED

    api.wait_for(done, _END_TIMEOUT_S, f"job {job_id} to end")
    return ended[-1]


def _result(path: Path, job_id: str) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise LocalError(f"job {job_id} succeeded without its result {path}: {error}") from None
