"""The nodes of this agent: made known, and kept alive, as a kubelet does for its own."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

from tools.cluster.kubelet.kube import CONFLICT, ApiError, Kube
from tools.cluster.kubelet.status import timestamp

Manifest = dict[str, Any]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_S, RENEWAL_S = 40, 10
"""A kubelet's. The node controller takes a node for lost when its lease is over."""
VERSION = "v1.35.4"
CONDITIONS = {
    "Ready": ("True", "KubeletReady", "pods run as processes"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "not measured"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "not measured"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "not measured"),
}

logger = logging.getLogger(__name__)


async def register(kube: Kube, manifest: Manifest, address: str, port: int) -> Manifest:
    """Creates a node, or takes up one of this name; it is ready then."""
    name = manifest["metadata"]["name"]
    try:
        await kube.create("/api/v1/nodes", manifest)
    except ApiError as error:
        if error.status != CONFLICT:
            raise
    return await report(kube, name, manifest, address, port)


async def api_service(kube: Kube) -> dict[str, str]:
    """The variables by which a pod's client finds the API server."""
    spec = (await kube.get("/api/v1/namespaces/default/services/kubernetes"))["spec"]
    return {
        "KUBERNETES_SERVICE_HOST": spec["clusterIP"],
        "KUBERNETES_SERVICE_PORT": str(spec["ports"][0]["port"]),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(spec["ports"][0]["port"]),
    }


async def report(kube: Kube, name: str, manifest: Manifest, address: str, port: int) -> Manifest:
    status = node_status(manifest, address, port)
    return await kube.merge(f"/api/v1/nodes/{name}/status", {"status": status})


def node_status(manifest: Manifest, address: str, port: int) -> Manifest:
    """What the manifest says of its resources, and what a kubelet adds."""
    now = timestamp()
    return {
        **manifest.get("status", {}),
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": manifest["metadata"]["name"]},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "kubeletVersion": VERSION,
            "containerRuntimeVersion": "process://1",
            "osImage": "this machine",
            **dict.fromkeys(("bootID", "kernelVersion", "kubeProxyVersion", "machineID"), ""),
            "systemUUID": "",
        },
        "conditions": [
            {
                "type": kind,
                "status": holds,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, (holds, reason, message) in CONDITIONS.items()
        ],
    }


async def keep_alive(kube: Kube, name: str) -> None:
    """Renews a node's lease until cancelled."""
    while True:
        try:
            await _renew(kube, name)
        except ApiError as error:
            logger.info("%s", error)
        await asyncio.sleep(RENEWAL_S)


async def _renew(kube: Kube, name: str) -> None:
    spec = {
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE_S,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    try:
        await kube.merge(f"{LEASES}/{name}", {"spec": spec})
    except ApiError as error:
        if not error.refused:
            raise
        await kube.create(LEASES, {"metadata": {"name": name}, "spec": spec})
