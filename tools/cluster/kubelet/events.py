"""Events on pods, as `kubectl describe pod` shows them. One that repeats is counted."""

import asyncio
import hashlib
import logging
from collections import Counter
from typing import Any

from tools.cluster.kubelet.kube import ApiError, Kube
from tools.cluster.kubelet.status import timestamp

Manifest = dict[str, Any]

MESSAGE_LIMIT = 1000
"""Of the API: 1,024."""

logger = logging.getLogger(__name__)


class Events:
    """Writes in the background: no pod waits for its events."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._counts: Counter[str] = Counter()
        self._writing: set[asyncio.Task[None]] = set()

    def report(self, pod: Manifest, kind: str, reason: str, message: str) -> None:
        task = asyncio.create_task(self._write(pod, kind, reason, message[:MESSAGE_LIMIT]))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, pod: Manifest, kind: str, reason: str, message: str) -> None:
        """An event that cannot be written is lost: its pod's status says what matters."""
        event = _event(pod, kind, reason, message)
        path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        name = event["metadata"]["name"]
        self._counts[name] += 1
        try:
            if self._counts[name] == 1:
                await self._kube.create(path, event)
            else:
                seen = {"count": self._counts[name], "lastTimestamp": timestamp()}
                await self._kube.merge(f"{path}/{name}", seen)
        except ApiError as error:
            logger.info("event %s %s: %s", reason, name, error)


def _event(pod: Manifest, kind: str, reason: str, message: str) -> Manifest:
    metadata, now = pod["metadata"], timestamp()
    identity = f"{metadata['uid']} {reason} {message}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return {
        "metadata": {"name": f"{metadata['name']}.{digest}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
    }
