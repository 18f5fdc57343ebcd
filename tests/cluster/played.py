"""Plays the Ray operator where none runs: it writes the status of Ray's objects, no more."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from kubernetes import client
from urllib3.exceptions import HTTPError

from tests.cluster.seen import ApiServerError, items, ray, request

PLURALS = {"RayJob": "rayjobs", "RayService": "rayservices", "RayCluster": "rayclusters"}
NOW = "2026-01-01T00:00:00Z"
POLL_S = 0.2

Status = dict[str, Any]


def condition(kind: str, *, holds: bool, generation: int | None = None) -> Status:
    observed = {} if generation is None else {"observedGeneration": generation}
    told = {"reason": "Played", "message": "", "lastTransitionTime": NOW}
    return {"type": kind, "status": str(holds), **told, **observed}


RUNNING = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
SUCCEEDED = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "endTime": NOW}


def fine(one: Mapping[str, Any]) -> Status:
    """What KubeRay 1.6 says when all has gone well."""
    generation = one["metadata"]["generation"]
    match one["kind"]:
        case "RayJob":
            return SUCCEEDED
        case "RayService":
            return {
                "serviceStatus": "Running",
                "observedGeneration": generation,
                "conditions": [
                    condition("Ready", holds=True, generation=generation),
                    condition("UpgradeInProgress", holds=False, generation=generation),
                ],
            }
        case _:
            head = condition("HeadPodReady", holds=True)
            return {"state": "ready", "observedGeneration": generation, "conditions": [head]}


class PlayedOperator:
    """While entered, gives every Ray object of a namespace the status that `play` says."""

    def __init__(
        self,
        api: client.ApiClient,
        namespace: str,
        play: Callable[[Mapping[str, Any]], Status | None] = fine,
    ) -> None:
        self.play = play
        self._api, self._namespace = api, namespace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(POLL_S):
            for one in self._listed():
                status = self.play(one)
                known = one.get("status", {})
                if status and any(known.get(key) != value for key, value in status.items()):
                    self._write(one, status)

    def _listed(self) -> Iterator[Mapping[str, Any]]:
        for kind, plural in PLURALS.items():
            try:
                found = items(self._api, ray(self._namespace, plural))
            except (ApiServerError, HTTPError):
                continue  # no such kind yet, or no API server
            yield from ({**one, "kind": kind} for one in found)

    def _write(self, one: Mapping[str, Any], status: Status) -> None:
        path = ray(self._namespace, PLURALS[one["kind"]])
        with contextlib.suppress(ApiServerError, HTTPError):  # it is gone, or is tried again
            request(
                self._api, "PATCH", f"{path}/{one['metadata']['name']}/status", {"status": status}
            )
