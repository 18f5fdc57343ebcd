"""Says of every pod that has a node that it is ready, without running it."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from kubernetes import client, watch
from urllib3.exceptions import HTTPError

from tests.cluster.seen import ApiServerError, request

WORKERS = 4
WATCH_LIMIT_S = 30
NOW = "2026-01-01T00:00:00Z"
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")

Manifest = dict[str, Any]


class PretendKubelet:
    """Of all nodes, while it is entered."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._watch = watch.Watch()
        self._over = threading.Event()
        self._workers = ThreadPoolExecutor(WORKERS)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.stop()
        self._thread.join()
        self._workers.shutdown(cancel_futures=True)

    def _run(self) -> None:
        listed = client.CoreV1Api(self._api).list_pod_for_all_namespaces
        while not self._over.is_set():
            with contextlib.suppress(HTTPError, client.ApiException):  # begun anew
                seen: Any = self._watch.stream(listed, timeout_seconds=WATCH_LIMIT_S)
                for event in seen:
                    self._workers.submit(self._see, event["raw_object"])

    def _see(self, pod: Manifest) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        with contextlib.suppress(ApiServerError):  # gone in the meantime
            if metadata.get("deletionTimestamp"):
                request(self._api, "DELETE", path, {"gracePeriodSeconds": 0})
            elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                request(self._api, "PATCH", f"{path}/status", {"status": ready(pod)})


def ready(pod: Manifest) -> Manifest:
    """The status of a pod whose containers all run."""
    spec = pod["spec"]
    conditions = [{"type": "PodScheduled", "status": "True"}]
    conditions += [{"type": one, "status": "True"} for one in CONDITIONS]
    return {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "startTime": NOW,
        "conditions": conditions,
        "initContainerStatuses": [
            _container(one, _done()) for one in spec.get("initContainers", [])
        ],
        "containerStatuses": [
            _container(one, {"running": {"startedAt": NOW}}) for one in spec["containers"]
        ],
    }


def _done() -> Manifest:
    return {
        "terminated": {"exitCode": 0, "startedAt": NOW, "finishedAt": NOW, "reason": "Completed"}
    }


def _container(container: Manifest, state: Manifest) -> Manifest:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": state,
    }
