"""Cloud Storage for pods: buckets by its JSON API, and as the folders that gcsfuse would mount.

The API is fake-gcs-server's, which keeps each object as a file at its own path. What differs from
the real one: a bucket that does not exist is made by the first object, no object can be another's
folder, the mark of an empty folder is not kept, and access is not judged. Who a pod is, it asks
where GKE has it ask, a metadata server; every client then goes its usual way to credentials.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from tools.cluster.control_plane import ROOT, free_ports
from tools.cluster.kubelet.environment import MissingError
from tools.cluster.program import Program
from tools.go.build import find

Manifest = dict[str, Any]

START_LIMIT_S = 30
REQUEST_LIMIT_S = 5
DRIVER = "gcsfuse.csi.storage.gke.io"
METADATA = "/computeMetadata/v1"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
PROJECT, ACCOUNT = "raytpu", "pod@raytpu.iam.gserviceaccount.com"

_ONLY_DIR = re.compile(r"only-dir[:=](.+)")


class Buckets:
    """Serves while it is entered.

    Args:
        folder: For objects, a folder a bucket, and the log.
        host: The address to listen on: pods must reach it.
        names: Of the buckets that there are from the start.
    """

    def __init__(self, folder: Path, host: str, names: Iterable[str]) -> None:
        self._host = host
        self._names = tuple(names)
        self._root = folder / "buckets"
        storage_port, self._metadata_port = free_ports(2)
        self.url = f"http://{host}:{storage_port}"
        command = [find("fake-gcs-server", ROOT), *self._options(storage_port)]
        self.program = Program("fake-gcs-server", command, folder / "logs")

    def __enter__(self) -> Self:
        self._root.mkdir(parents=True, exist_ok=True)
        self._metadata = _MetadataServer((self._host, self._metadata_port), _Metadata)
        threading.Thread(target=self._metadata.serve_forever, daemon=True, name="metadata").start()
        self.program.start()
        try:
            self.program.wait(self._is_ready, "not ready", START_LIMIT_S)
            for name in self._names:
                self._make(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.program.stop()
        self._metadata.shutdown()
        self._metadata.server_close()

    def environment(self) -> dict[str, str]:
        """By which the libraries of a workload find these buckets, and who they are."""
        metadata = f"{self._host}:{self._metadata_port}"
        return {
            "STORAGE_EMULATOR_HOST": self.url,  # gcsfs, and with it fsspec and etils
            "CLOUD_STORAGE_EMULATOR_ENDPOINT": self.url,  # pyarrow, and with it Ray Train
            "TENSORSTORE_GCS_HTTP_URL": self.url,  # tensorstore, and with it Orbax
            "GCE_METADATA_HOST": metadata,  # Python
            "GCE_METADATA_IP": metadata,
            "GCE_METADATA_ROOT": metadata,  # C++
            # gcsfs asks an API of the real service for the kind of each bucket.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }

    async def csi(self, pod: Manifest, volume: Manifest) -> Path:
        """The folder that gcsfuse would mount; raises MissingError while there is none."""
        return await asyncio.to_thread(self.mounted, volume["csi"], pod)

    def mounted(self, source: Manifest, pod: Manifest) -> Path:
        """As `csi`."""
        if (driver := source["driver"]) != DRIVER:
            raise MissingError(f"driver name {driver} not found; there is only {DRIVER}")
        if pod["metadata"].get("annotations", {}).get("gke-gcsfuse/volumes") != "true":
            # As on GKE, where the sidecar that mounts comes by this annotation.
            raise MissingError('annotation gke-gcsfuse/volumes is not "true"')
        attributes = source.get("volumeAttributes", {})
        bucket = self._root / attributes.get("bucketName", "")
        options = map(_ONLY_DIR.fullmatch, attributes.get("mountOptions", "").split(","))
        folder = next((found[1] for found in options if found), "")
        path = (bucket / folder).resolve()
        if bucket.parent != self._root or not path.is_relative_to(bucket.resolve()):
            raise MissingError(f"{bucket.name}/{folder} is in no bucket")
        if folder and not any(entry.is_file() for entry in path.rglob("*")):
            raise MissingError(f"bucket {bucket.name} has no object below {folder}")
        if not path.is_dir():
            raise MissingError(f"bucket {bucket.name} does not exist")
        return path

    def _options(self, port: int) -> Iterator[str]:
        yield "-scheme=http"
        yield f"-host={self._host}"
        yield f"-port={port}"
        yield f"-public-host={self._host}"
        yield f"-external-url={self.url}"
        yield "-backend=filesystem"
        yield f"-filesystem-root={self._root}"
        yield "-log-level=warn"

    def _is_ready(self) -> bool:
        try:
            return self._ask("GET").is_success
        except httpx.HTTPError:
            return False

    def _make(self, name: str) -> None:
        answer = self._ask("POST", {"name": name})
        if answer.status_code != HTTPStatus.CONFLICT:  # of an earlier run
            answer.raise_for_status()

    def _ask(self, method: str, body: Manifest | None = None) -> httpx.Response:
        return httpx.request(
            method,
            f"{self.url}/storage/v1/b",
            params={"project": PROJECT},
            json=body,
            timeout=REQUEST_LIMIT_S,
            trust_env=False,
        )


class _MetadataServer(ThreadingHTTPServer):
    daemon_threads = True


class _Metadata(BaseHTTPRequestHandler):
    """What GKE's metadata server says to a pod with Workload Identity, as far as clients ask."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path.rstrip("/")
        account = {"email": ACCOUNT, "aliases": ["default"], "scopes": [SCOPE]}
        token = {"access_token": "stand-in", "expires_in": 3600, "token_type": "Bearer"}
        accounts = f"{METADATA}/instance/service-accounts"
        answers: dict[str, Any] = {
            "": "computeMetadata/",
            f"{METADATA}/project/project-id": PROJECT,
            **{f"{accounts}/{name}": account for name in ("default", ACCOUNT)},
            **{f"{accounts}/{name}/token": token for name in ("default", ACCOUNT)},
        }
        if path not in answers:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        answer = answers[path]
        body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the base's name
        """Nothing: every client asks again and again."""
