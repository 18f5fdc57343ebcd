"""What KubeRay's operator and Google's TPU webhook refuse after the API server has said yes.

Written by hand from the operator's validation.go (v1.5.0 and v1.6.1) and the webhook's main.go
(ef658db). What they refuse shows only as an event: Pulumi would take the object for made.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
GO_DURATION = re.compile(r"(\d+h)?(\d+m)?(\d+s)?|\d+")
# KubeRay appends six characters to the name of a job or service for its cluster's.
NAME_LIMIT = {"RayCluster": 53, "RayJob": 47, "RayService": 47}
# The webhook cuts the name of the service by which hosts find each other; the operator does not.
HOSTS_NAME_LIMIT = {"RayCluster": 41, "RayJob": 35, "RayService": 35}


def faults(manifest: dict[str, Any]) -> list[str]:
    kind, spec = manifest["kind"], manifest["spec"]
    cluster = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(kind)
    found = [*_name(kind, manifest["metadata"]["name"], _groups(spec, cluster))]
    found += _cluster(spec[cluster] if cluster else spec)
    if kind == "RayJob":
        found += _job(spec)
    if kind == "RayService":
        found += _service(manifest)
    return found


def _groups(spec: dict[str, Any], cluster: str | None) -> list[dict[str, Any]]:
    return (spec[cluster] if cluster else spec)["workerGroupSpecs"]


def _name(kind: str, name: str, groups: list[dict[str, Any]]) -> Iterator[str]:
    if not DNS_1035.fullmatch(name):
        yield f"{name} is no DNS-1035 label"
    limit = NAME_LIMIT[kind]
    if any(group["numOfHosts"] > 1 for group in groups):
        limit = HOSTS_NAME_LIMIT[kind]
    if len(name) > limit:
        yield f"{name} has more than {limit} characters"
    for group in groups:
        host = f"{group['groupName']}-{group['maxReplicas']}-{group['numOfHosts']}"
        if len(host) > 63 or not DNS_1035.fullmatch(group["groupName"]):
            yield f"{host} names no host"
    if len({group["groupName"] for group in groups}) < len(groups):
        yield "two groups have one name"


def _cluster(spec: dict[str, Any]) -> Iterator[str]:
    groups = spec["workerGroupSpecs"]
    autoscaled = spec.get("enableInTreeAutoscaling", False)
    for group in [spec["headGroupSpec"], *groups]:
        yield from _group(group)
        if autoscaled and group["template"]["spec"].get("restartPolicy", "Never") != "Never":
            yield "version 2 of the autoscaler wants restartPolicy Never"
    for group in groups:
        yield from _replicas(group)
        yield from _webhook(group)
    head = spec["headGroupSpec"]
    names = {variable["name"] for variable in head["template"]["spec"]["containers"][0]["env"]}
    if names & {"REDIS_PASSWORD", "RAY_REDIS_ADDRESS", "REDIS_USERNAME"}:
        yield "Redis is told by variables of the head"
    if "RAY_enable_autoscaler_v2" in names:
        yield "the autoscaler's version is told by a variable"


def _group(group: dict[str, Any]) -> Iterator[str]:
    params = group["rayStartParams"]
    if not all(isinstance(value, str) for value in params.values()):
        yield "a rayStartParam is no text"
    if "labels" in params or params.keys() & {"redis-password", "redis-username"}:
        yield "a rayStartParam has a field of its own"
    for key, value in group.get("labels", {}).items():
        if not (LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
            yield f"{key}={value} is no label"


def _replicas(group: dict[str, Any]) -> Iterator[str]:
    least, most = group.get("minReplicas"), group.get("maxReplicas")
    if least is None or most is None:
        yield "minReplicas and maxReplicas must both be set"
    elif not 0 <= least <= group["replicas"] <= most:
        yield "replicas are outside of their limits"


def _webhook(group: dict[str, Any]) -> Iterator[str]:
    pod = group["template"]["spec"]
    chips = int(pod["containers"][0]["resources"]["limits"].get("google.com/tpu", 0))
    if not chips:
        return
    topology = pod.get("nodeSelector", {}).get("cloud.google.com/gke-tpu-topology")
    if topology is None:
        yield "a TPU pod selects no topology"
        return
    hosts = max(math.prod(int(size) for size in topology.split("x")) // chips, 1)
    if group["numOfHosts"] != hosts:
        yield f"numOfHosts is {group['numOfHosts']} instead of {hosts}"
    if "app.kubernetes.io/name" in group["template"]["metadata"].get("labels", {}):
        yield "the label by which the webhook finds its pods is taken"


def _job(spec: dict[str, Any]) -> Iterator[str]:
    shutdown = spec.get("shutdownAfterJobFinishes", False)
    if spec.get("ttlSecondsAfterFinished", 0) and not shutdown:
        yield "a time to live takes shutdownAfterJobFinishes"
    if shutdown and "deletionStrategy" in spec:
        yield "deletion rules exclude shutdownAfterJobFinishes"
    if not shutdown and "deletionStrategy" not in spec:
        yield "the job keeps its slices for ever"
    if spec["backoffLimit"] < 0 or spec["activeDeadlineSeconds"] <= 0:
        yield "a limit is negative"
    if "upgradeStrategy" in spec["rayClusterSpec"]:
        yield "upgradeStrategy is for clusters of their own"
    rules = spec.get("deletionStrategy", {}).get("deletionRules", [])
    if rules and spec["rayClusterSpec"].get("enableInTreeAutoscaling"):
        yield "workers of an autoscaler cannot be deleted"


def _service(manifest: dict[str, Any]) -> Iterator[str]:
    timeout = manifest["metadata"]["annotations"]["ray.io/initializing-timeout"]
    if not timeout or not GO_DURATION.fullmatch(timeout):
        yield f"{timeout} is no duration of Go"
    if manifest["spec"]["upgradeStrategy"]["type"] not in {"NewCluster", "None"}:
        yield "the upgrade strategy does not exist"
    if not isinstance(manifest["spec"]["serveConfigV2"], str):
        yield "serveConfigV2 is no text"
    if "headService" in manifest["spec"]["rayClusterConfig"]["headGroupSpec"]:
        yield "the head's service is the operator's"
