"""The status of a pod, from what its containers are doing. Pure.

After pkg/kubelet (kubelet_pods.go, status/generate.go) of Kubernetes 1.35.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Manifest = dict[str, Any]

SIGNALLED = 128
"""Added to a signal's number: the exit code of a program that a signal ended."""
KILLED = SIGNALLED + 9


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason: str, message: str | None = None) -> Manifest:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def running(started: str) -> Manifest:
    return {"running": {"startedAt": started}}


def terminated(code: int, started: str, reason: str | None = None, message: str = "") -> Manifest:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            "startedAt": started,
            "finishedAt": timestamp(),
            **({"message": message} if message else {}),
        }
    }


def exit_code(returned: int) -> int:
    """Python says -9 of what Kubernetes calls 137."""
    return SIGNALLED - returned if returned < 0 else returned


@dataclass
class ContainerState:
    """What is known of one container."""

    manifest: Manifest
    init: bool = False
    state: Manifest = field(default_factory=lambda: waiting("PodInitializing"))
    last_state: Manifest = field(default_factory=dict)
    restarts: int = 0
    started: bool = False
    """It runs, and its startup probe has passed."""
    ready: bool = False
    identity: str = ""

    @property
    def name(self) -> str:
        return self.manifest["name"]

    @property
    def sidecar(self) -> bool:
        """An init container that goes on beside the others."""
        return self.init and self.manifest.get("restartPolicy") == "Always"

    @property
    def exit(self) -> int | None:
        """Of its last end, if it is not running; None if it never ended."""
        ended = self.state.get("terminated")
        if ended is None and "waiting" in self.state:
            ended = self.last_state.get("terminated")
        return None if ended is None else ended["exitCode"]

    @property
    def has_run(self) -> bool:
        return "running" in self.state or self.exit is not None

    def status(self) -> Manifest:
        image = self.manifest["image"]
        return {
            "name": self.name,
            "image": image,
            "imageID": image if self.identity else "",
            **({"containerID": self.identity} if self.identity else {}),
            "state": self.state,
            "lastState": self.last_state,
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
        }


def adopted(manifest: Manifest, *, init: bool, before: Manifest | None) -> ContainerState:
    """A container as the API knows it from an agent that is gone, and its processes with it."""
    if before is None:
        return ContainerState(manifest, init=init)
    known = ContainerState(
        manifest,
        init=init,
        state=before["state"],
        last_state=before.get("lastState", {}),
        restarts=before["restartCount"],
        ready=before["ready"],
        identity=before.get("containerID", ""),
    )
    if started := before["state"].get("running"):
        known.ready = False
        known.state = terminated(KILLED, started["startedAt"], "ContainerStatusUnknown")
    return known


@dataclass(frozen=True)
class PodState:
    """All that a pod's status follows from, beside its manifest."""

    containers: Sequence[ContainerState]
    """The init containers first, each in the manifest's order."""
    address: str | None
    """None before its sandbox was there."""
    sandbox: bool
    """Whether it is there."""
    host_ip: str
    started: str
    ending: bool = False
    """Nothing of it is restarted any more."""
    fault: Manifest = field(default_factory=dict)
    """Reason and message, of a pod that the node itself ended."""


def pod_status(pod: Manifest, now: PodState) -> Manifest:
    """The fields that a kubelet writes. Conditions that did not change keep their time."""
    init = [c for c in now.containers if c.init]
    main = [c for c in now.containers if not c.init]
    phase = pod_phase(pod["spec"].get("restartPolicy", "Always"), init, main, ending=now.ending)
    previous = pod.get("status", {}).get("conditions", [])
    return {
        "phase": phase,
        **now.fault,
        "observedGeneration": pod["metadata"].get("generation", 1),
        "conditions": [
            _dated(condition, previous)
            for condition in _conditions(pod, phase, init, main, sandbox=now.sandbox)
        ],
        "hostIP": now.host_ip,
        "hostIPs": [{"ip": now.host_ip}],
        "startTime": now.started,
        **(_addresses(now.address) if now.address else {}),
        **({"initContainerStatuses": [c.status() for c in init]} if init else {}),
        "containerStatuses": [c.status() for c in main],
    }


def _addresses(address: str) -> Manifest:
    """In place of those of an earlier sandbox: a merge would keep both."""
    return {"podIP": address, "podIPs": [{"$patch": "replace"}, {"ip": address}]}


def pod_phase(
    restart_policy: str,
    init: Sequence[ContainerState],
    main: Sequence[ContainerState],
    *,
    ending: bool = False,
) -> str:
    """One word for all containers; `ending` makes it final, since nothing starts again."""
    policy = "Never" if ending else restart_policy
    if _uninitialized(init, main):
        failed = any(c.exit and not c.sidecar for c in init)
        return "Failed" if policy == "Never" and failed else _unless_never_started(init, ending)
    if any("running" in c.state for c in main):
        waits = any("waiting" in c.state and c.exit is None for c in main)
        return "Pending" if waits else "Running"
    if any(c.exit is None for c in main):
        return _unless_never_started(main, ending)
    if policy == "Always":
        return "Running"
    if all(c.exit == 0 for c in main):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def _unless_never_started(containers: Iterable[ContainerState], ending: bool) -> str:  # one caller
    """A pod that is ended before all of it ran has failed."""
    if ending and not any("running" in c.state for c in containers):
        return "Failed"
    return "Pending"


def _uninitialized(
    init: Iterable[ContainerState], main: Iterable[ContainerState]
) -> list[ContainerState]:
    """What the others still wait for; nothing once they began, also if a side-car fails."""
    if any(c.has_run for c in main):
        return []
    return [c for c in init if not (c.started if c.sidecar else c.exit == 0)]


def _conditions(
    pod: Manifest,
    phase: str,
    init: Sequence[ContainerState],
    main: Sequence[ContainerState],
    *,
    sandbox: bool,
) -> list[Manifest]:
    not_started = [c.name for c in _uninitialized(init, main)]
    initialized = phase == "Succeeded" or not not_started
    unready = [c.name for c in [*init, *main] if not c.ready and (c.sidecar or not c.init)]
    ready = phase == "Running" and initialized and not unready
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates", [])]
    met = {c["type"] for c in pod.get("status", {}).get("conditions", []) if c["status"] == "True"}
    reason = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    unmet = f"containers with unready status: [{' '.join(unready)}]" if unready else None
    incomplete = f"containers with incomplete status: [{' '.join(not_started)}]"
    gates_met = all(gate in met for gate in gates)
    return [
        _condition("PodReadyToStartContainers", holds=sandbox),
        _condition(
            "Initialized", holds=initialized, reason="ContainersNotInitialized", message=incomplete
        ),
        _condition("ContainersReady", holds=ready, reason=reason, message=unmet),
        _condition(
            "Ready",
            holds=ready and gates_met,
            reason=reason if not ready else "ReadinessGatesNotReady",
            message=unmet if not ready else "not all readiness gates are True",
        ),
    ]


def _condition(
    kind: str, *, holds: bool, reason: str | None = None, message: str | None = None
) -> Manifest:
    if holds or reason is None:
        # Null, so that the patch removes what a false condition said.
        return {"type": kind, "status": str(holds), "reason": None, "message": None}
    return {"type": kind, "status": "False", "reason": reason, "message": message}


def _dated(condition: Manifest, previous: Iterable[Manifest]) -> Manifest:
    """With the time at which it last changed, as far as `previous` knows."""
    for old in previous:
        same = old["type"] == condition["type"] and old["status"] == condition["status"]
        if same and old.get("lastTransitionTime"):
            return {**condition, "lastTransitionTime": old["lastTransitionTime"]}
    return {**condition, "lastTransitionTime": timestamp()}
