"""What GKE's TPU webhook does to pods and RayClusters, as pure functions of their manifests.

Follows kuberay-tpu-webhook (ef658db, 2026-05), whose words a user sees when something is refused.
It differs in one thing: the real one numbers a new replica by how many there are, and so gives a
number twice when an earlier replica is gone; this one gives the lowest that is free.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from infra.tpu.catalog import ACCELERATOR_LABEL, CHIP_RESOURCE, TOPOLOGY_LABEL

Manifest = dict[str, Any]

CLUSTER = "ray.io/cluster"
GROUP = "ray.io/group"
REPLICA_NAME = "ray.io/worker-group-replica-name"
REPLICA_INDEX = "ray.io/worker-group-replica-index"
HOST_INDEX = "ray.io/replica-host-index"
OWN_REPLICA = "replicaIndex"
"""Label of the webhook itself, where the operator does not number replicas and hosts."""
NODE_POOL = "cloud.google.com/gke-nodepool"

PROCESS_PORT = 8471
MEGASCALE_PORT = 8081
LONGEST_SERVICE = 50
"""Characters that the webhook leaves of a headless service's name, from the end."""


class Refused(Exception):  # noqa: N818 # not an error of ours
    """A pod or RayCluster that the webhook does not let in; says why."""


class Denied(Refused):
    """Refused in words that the user sees; of others only the webhook's log tells the reason."""


class Slot(NamedTuple):
    """A pod's place among the pods of its worker group."""

    replica: int
    host: int


def mutate(pod: Manifest, slot: Slot) -> list[Manifest]:
    """The JSON patch for a pod that is being created and asks for chips. Raises Refused."""
    containers, labels, pod_hosts = pod["spec"]["containers"], _labels(pod), hosts(pod)
    patch: list[Manifest] = []
    if numbered(pod) is None:
        label = f"{labels[GROUP]}-{slot.replica}"
        patch.append(_add(f"/metadata/labels/{OWN_REPLICA}", label))
    if pod_hosts > 1:
        patch.append(_add("/spec/hostname", f"{labels[GROUP]}-{slot.replica}-{slot.host}"))
        patch.append(_add("/spec/subdomain", headless_service(labels[CLUSTER])))
        patch.append(_add("/spec/affinity", _affinity(pod, slot)))
    patch += [
        _add(f"/spec/containers/{index}/env", [*container.get("env", []), *added])
        for index, container in enumerate(containers)
        if chips(container) and (added := _variables(pod, slot, index))
    ]
    return patch


def validate(cluster: Manifest) -> None:
    """Judges a RayCluster that is being created; raises Refused."""
    for group in cluster["spec"].get("workerGroupSpecs", []):
        template = group["template"]["spec"]
        containers = template.get("containers", [])
        if not containers:
            raise Refused("Container path not specified")
        if not any(map(chips, containers)):
            continue
        topology = template.get("nodeSelector", {}).get(TOPOLOGY_LABEL)
        if not topology:
            raise Refused("TPU topology not specified")
        if group["numOfHosts"] != _hosts(topology, sum(map(chips, containers))):
            raise Denied("Number of workers in worker group not equal to specified topology")


def asks_for_chips(pod: Manifest) -> bool:
    return any(map(chips, pod["spec"]["containers"]))


def hosts(pod: Manifest) -> int:
    """Of the pod's slice. Raises Refused if it is not as KubeRay makes it, or has no topology."""
    for label, name in ((CLUSTER, "RayCluster label"), (GROUP, "Group label")):
        if not _labels(pod).get(label):
            raise Refused(f"Ray Pod created by KubeRay missing {name}")
    topology = _selector(pod).get(TOPOLOGY_LABEL)
    if not topology:
        raise Refused("Ray Pod created by KubeRay missing TPU topology nodeSelector")
    return _hosts(topology, sum(map(chips, pod["spec"]["containers"])))


def chips(container: Manifest) -> int:
    """What a container asks for; a limit is a request too."""
    resources = container.get("resources", {})
    asked = {**resources.get("limits", {}), **resources.get("requests", {})}
    return int(asked.get(CHIP_RESOURCE, 0))


def numbered(pod: Manifest) -> Slot | None:
    """As the operator numbered the pod; None if it did not."""
    labels = _labels(pod)
    if REPLICA_INDEX not in labels or HOST_INDEX not in labels:
        return None
    return Slot(int(labels[REPLICA_INDEX]), int(labels[HOST_INDEX]))


def slot_of(pod: Manifest) -> Slot | None:
    """As the webhook numbered a pod; None if it did not.

    Raises Refused for a pod that was let in without a TPU_WORKER_ID: its slice cannot start.
    """
    label = _labels(pod).get(OWN_REPLICA)
    containers = [container for container in pod["spec"]["containers"] if chips(container)]
    if not label or not containers:
        return None
    number = _value(containers[0], "TPU_WORKER_ID")
    if not number:
        raise Refused("existing TPU worker missing TPU_WORKER_ID")
    return Slot(int(label.rsplit("-", 1)[-1]), int(number) // len(containers))


def free_slot(pod: Manifest, others: Iterable[Manifest]) -> Slot:
    """The lowest that no other pod of the group has. Raises Refused.

    A pod that is being deleted has none any more.
    """
    staying = [other for other in others if not other["metadata"].get("deletionTimestamp")]
    taken = {slot_of(other) for other in staying}
    per_slice = hosts(pod)
    numbers = (Slot(*divmod(number, per_slice)) for number in range(len(taken) + 1))
    return next(slot for slot in numbers if slot not in taken)


def headless_service(cluster: str) -> str:
    """The service of a RayCluster's pods, as the webhook names it.

    It cuts a long name; KubeRay 1.4 and later do not, and host names then lead nowhere.
    """
    name = f"{cluster}-headless"[-LONGEST_SERVICE:]
    return name if name[0].isalpha() else f"r{name[1:]}"


def _variables(pod: Manifest, slot: Slot, index: int) -> list[Manifest]:
    """Those that are added to the container at `index`; what the user set is left alone."""
    containers = pod["spec"]["containers"]
    container = containers[index]
    ours = [other for other in containers if chips(other)]
    place = next(number for number, other in enumerate(ours) if other is container)
    group, service = _labels(pod)[GROUP], headless_service(_labels(pod)[CLUSTER])
    newest = _selector(pod).get(ACCELERATOR_LABEL, "").startswith("tpu7x")
    names = [f"{group}-{slot.replica}-{host}.{service}" for host in range(hosts(pod))]

    wanted: dict[str, str] = {}
    if _has(container, "MEGASCALE_NUM_SLICES"):
        wanted |= _megascale(f"{group}-0-0.{service}", slot, place, newest=newest)
    if len(names) > 1:
        wanted["TPU_WORKER_HOSTNAMES"] = ",".join(names)
    if len(names) > 1 and newest:
        ports = range(PROCESS_PORT, PROCESS_PORT + len(ours))
        wanted["TPU_PROCESS_ADDRESSES"] = ",".join(f"{n}:{port}" for n in names for port in ports)
        wanted["TPU_PROCESS_PORT"] = str(PROCESS_PORT + place)
    wanted["TPU_WORKER_ID"] = str(slot.host * len(ours) + place if newest else slot.host)
    wanted["TPU_NAME"] = f"{group}-{slot.replica}"

    added: list[Manifest] = [
        {"name": name, "value": value}
        for name, value in wanted.items()
        if (given := _value(container, name)) != value and _is_open(name, given, place)
    ]
    if not _has(container, "TPU_DEVICE_PLUGIN_HOST_IP"):
        field = {"fieldRef": {"fieldPath": "status.hostIP"}}
        added.append({"name": "TPU_DEVICE_PLUGIN_HOST_IP", "valueFrom": field})
    if not _value(container, "TPU_DEVICE_PLUGIN_ADDR"):
        address = "$(TPU_DEVICE_PLUGIN_HOST_IP):2112"
        added.append({"name": "TPU_DEVICE_PLUGIN_ADDR", "value": address})
    return added


def _is_open(name: str, value: str, place: int) -> bool:
    """Whether the webhook decides a variable that has this value: none, or only a default's."""
    match name:
        case "TPU_WORKER_HOSTNAMES":
            return value in ("", "localhost")
        case "TPU_PROCESS_ADDRESSES":
            return not value or "localhost" in value
        case "TPU_WORKER_ID":
            return value in ("", str(place))
        case _:
            return not value


def _megascale(coordinator: str, slot: Slot, place: int, *, newest: bool) -> dict[str, str]:
    """Of a program over several slices, which are the replicas of one group."""
    return {
        "MEGASCALE_SLICE_ID": str(slot.replica),
        "MEGASCALE_COORDINATOR_ADDRESS": (
            f"{coordinator}:{MEGASCALE_PORT}" if newest else coordinator
        ),
        "MEGASCALE_PORT": str(MEGASCALE_PORT + place if newest else MEGASCALE_PORT),
    }


def _affinity(pod: Manifest, slot: Slot) -> Manifest:
    """A replica's pods in one node pool, and no others in it. Replaces the user's own."""
    labels = _labels(pod)
    if REPLICA_NAME in labels and HOST_INDEX in labels:
        key, value = REPLICA_NAME, labels[REPLICA_NAME]
    else:
        key, value = OWN_REPLICA, f"{labels[GROUP]}-{slot.replica}"
    cluster = labels[CLUSTER]
    together = _term([_rule(key, "In", value), _rule(CLUSTER, "In", cluster)])
    other_replica = _term([_rule(key, "NotIn", value), _rule(CLUSTER, "In", cluster)])
    other_cluster = _term([_rule(CLUSTER, "NotIn", cluster), _rule(key, "Exists")])
    everywhere = [_rule("kubernetes.io/metadata.name", "NotIn", "kube-system")]
    other_cluster["namespaceSelector"] = {"matchExpressions": everywhere}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {
        "podAffinity": {required: [together]},
        "podAntiAffinity": {required: [other_replica, other_cluster]},
    }


def _term(rules: Sequence[Manifest]) -> Manifest:
    return {"labelSelector": {"matchExpressions": [*rules]}, "topologyKey": NODE_POOL}


def _rule(key: str, operator: str, *values: str) -> Manifest:
    rule: Manifest = {"key": key, "operator": operator}
    return {**rule, "values": [*values]} if values else rule


def _hosts(topology: str, chips_per_host: int) -> int:
    try:
        return max(math.prod(map(int, topology.split("x"))) // chips_per_host, 1)
    except ValueError:
        raise Refused(f"TPU topology {topology} is none") from None


def _add(path: str, value: object) -> Manifest:
    return {"op": "add", "path": path, "value": value}


def _labels(pod: Manifest) -> dict[str, str]:
    return pod["metadata"].get("labels", {})


def _selector(pod: Manifest) -> dict[str, str]:
    return pod["spec"].get("nodeSelector", {})


def _has(container: Manifest, name: str) -> bool:
    return any(
        variable["name"] == name and (variable.get("value") or variable.get("valueFrom"))
        for variable in container.get("env", [])
    )


def _value(container: Manifest, name: str) -> str:
    """Empty if there is none, or none yet."""
    for variable in container.get("env", []):
        if variable["name"] == name:
            return variable.get("value", "")
    return ""
