"""What a test sees of a cluster: by its API server, and by what a command says."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from http.client import BAD_REQUEST
from typing import Any

from kubernetes import client

LIMIT_S = 120
REQUEST_LIMIT_S = 30
POLL_S = 0.1
PATCHES = "application/merge-patch+json"


class ApiServerError(Exception):
    """What the API server said."""


def request(api: client.ApiClient, method: str, path: str, body: Any = None) -> Any:
    """What the API server answers, as plain data: the client's own classes are of no use to us."""
    return json.loads(request_text(api, path, method, body))


def request_text(api: client.ApiClient, path: str, method: str = "GET", body: Any = None) -> str:
    url = f"{api.configuration.host}{path}"
    headers = {"Content-Type": PATCHES if method == "PATCH" else "application/json"}
    api.update_params_for_auth(headers, [], ["BearerToken"], url, method, body)
    answer = api.call_api(method, url, headers, body, None, REQUEST_LIMIT_S)
    text = answer.read().decode()
    if answer.status >= BAD_REQUEST:
        raise ApiServerError(f"{method} {path}: {text}")
    return text


def items(api: client.ApiClient, path: str) -> list[dict[str, Any]]:
    return request(api, "GET", path)["items"]


def names(api: client.ApiClient, path: str) -> list[str]:
    return [one["metadata"]["name"] for one in items(api, path)]


def ray(namespace: str, plural: str) -> str:
    """The path of Ray's objects."""
    return f"/apis/ray.io/v1/namespaces/{namespace}/{plural}"


def wait_for(
    what: str, holds: Callable[[], bool], limit_s: float = LIMIT_S, poll_s: float = POLL_S
) -> None:
    deadline_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline_s, f"{what}: not within {limit_s} s"
        time.sleep(poll_s)


def said_until(process: "subprocess.Popen[str]", words: str, limit_s: float = LIMIT_S) -> str:
    """What a running command says up to some words; ends it if they do not come."""
    assert process.stdout
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            timer.cancel()
            return said
    raise AssertionError(f"{words!r} was not said within {limit_s} s: {said}")
