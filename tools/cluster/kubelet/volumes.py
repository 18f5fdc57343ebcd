"""The volumes of a pod as folders of this machine, and what a container mounts of them.

Not here: hostPath, claims and other drivers, which `unsupported` names.
"""

import asyncio
import json
import shutil
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tools.cluster.kubelet.environment import (
    MissingError,
    PodFacts,
    Sources,
    expand,
    field_value,
    resource_value,
)
from tools.cluster.kubelet.kube import NOT_FOUND, ApiError, Kube
from tools.cluster.kubelet.root import Mount

Manifest = dict[str, Any]
Csi = Callable[[Manifest, Manifest], Awaitable[Path]]
"""(pod, volume) -> the folder that a driver would mount. Raises MissingError."""

KINDS = ("emptyDir", "configMap", "secret", "downwardAPI", "projected", "csi")
TOKEN_LIFE_S = 3600
TOKEN_RENEWAL = 0.8
"""Of a token's life; as a kubelet does."""


def kind_of(volume: Manifest) -> str:
    return next((key for key in volume if key != "name"), "emptyDir")


def unsupported(pod: Manifest) -> Iterator[str]:
    for volume in pod["spec"].get("volumes", []):
        if (kind := kind_of(volume)) not in KINDS:
            yield f'volume "{volume["name"]}" is a {kind}: use one of {", ".join(KINDS)}'


async def fetch(kube: Kube, namespace: str, names: set[tuple[str, str]]) -> Sources:
    """The data of the ConfigMaps and Secrets that exist."""
    found: dict[tuple[str, str], Mapping[str, bytes]] = {}
    for kind, name in names:
        path = f"/api/v1/namespaces/{namespace}/{kind.lower()}s/{name}"
        try:
            found[kind, name] = _decoded(kind, await kube.get(path))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
    return found


@dataclass
class Volumes:
    """The volumes of one pod, below `folder`."""

    kube: Kube
    facts: PodFacts
    folder: Path
    csi: Csi | None
    _paths: dict[str, Path] = field(default_factory=dict)
    _tokens: dict[str, tuple[str, datetime]] = field(default_factory=dict)

    @property
    def memory_folders(self) -> list[Path]:
        """Those that live in memory: the sandbox mounts them."""
        return [
            self.folder / volume["name"]
            for volume in self._declared()
            if volume.get("emptyDir", {}).get("medium") == "Memory"
        ]

    def make_empty(self) -> None:
        """The folders, before there is anything in them."""
        for volume in self._declared():
            path = self.folder / volume["name"]
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o777)
            self._paths[volume["name"]] = path

    async def fill(self) -> None:
        """Writes what comes from the API, again where it changed. Raises MissingError, ApiError."""
        for volume in self._declared():
            kind = kind_of(volume)
            if kind == "csi":
                self._paths[volume["name"]] = await self._from_driver(volume)
            elif kind != "emptyDir":
                files = await self._files(volume[kind], kind)
                await asyncio.to_thread(_write, self._paths[volume["name"]], files)

    def mounts(self, container: Manifest, variables: Mapping[str, str]) -> list[Mount]:
        return [self._mount(mount, variables) for mount in container.get("volumeMounts", [])]

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _declared(self) -> list[Manifest]:
        return self.facts.pod["spec"].get("volumes", [])

    def _mount(self, mount: Manifest, variables: Mapping[str, str]) -> Mount:
        path = self._paths[mount["name"]]
        sub_path = mount.get("subPath", expand(mount.get("subPathExpr", ""), variables))
        if sub_path:
            path = path / sub_path
            if not path.exists():
                path.mkdir(parents=True)
        return Mount(path, mount["mountPath"], read_only=mount.get("readOnly", False))

    async def _from_driver(self, volume: Manifest) -> Path:
        if self.csi is None:
            raise MissingError(f"driver name {volume['csi']['driver']} not found")
        return await self.csi(self.facts.pod, volume)

    async def _files(self, source: Manifest, kind: str) -> dict[str, tuple[bytes, int]]:
        """Path within the volume -> content and mode."""
        mode = source.get("defaultMode", 0o644)
        match kind:
            case "configMap":
                return await self._data("ConfigMap", source["name"], source, mode)
            case "secret":
                name = source.get("secretName") or source["name"]
                return await self._data("Secret", name, source, mode)
            case "downwardAPI":
                return self._downward(source, mode)
            case "serviceAccountToken":
                return {source["path"]: (await self._token(source), 0o644)}
            case "projected":
                return await self._projected(source, mode)
            case _:
                raise MissingError(f"unsupported source of a projected volume: {kind}")

    async def _projected(self, source: Manifest, mode: int) -> dict[str, tuple[bytes, int]]:
        files: dict[str, tuple[bytes, int]] = {}
        for part in source.get("sources", []):
            for kind, inner in part.items():
                files |= await self._files({"defaultMode": mode, **inner}, kind)
        return files

    async def _data(
        self, kind: str, name: str, source: Manifest, mode: int
    ) -> dict[str, tuple[bytes, int]]:
        namespace = self.facts.pod["metadata"]["namespace"]
        data = (await fetch(self.kube, namespace, {(kind, name)})).get((kind, name))
        optional = source.get("optional", False)
        if data is None and not optional:
            raise MissingError(f'{kind.lower()} "{name}" not found')
        data = data or {}
        items: list[Manifest] = source.get("items") or [{"key": key, "path": key} for key in data]
        missing = [item["key"] for item in items if item["key"] not in data]
        if missing and not optional:
            raise MissingError(f"{kind} {name} has no key {', '.join(missing)}")
        return {
            item["path"]: (data[item["key"]], item.get("mode", mode))
            for item in items
            if item["key"] in data
        }

    def _downward(self, source: Manifest, mode: int) -> dict[str, tuple[bytes, int]]:
        files: dict[str, tuple[bytes, int]] = {}
        for item in source.get("items", []):
            files[item["path"]] = (self._downward_text(item).encode(), item.get("mode", mode))
        return files

    def _downward_text(self, item: Manifest) -> str:
        metadata = self.facts.pod["metadata"]
        if reference := item.get("resourceFieldRef"):
            containers = self.facts.pod["spec"]["containers"]
            named = next(c for c in containers if c["name"] == reference["containerName"])
            return resource_value(reference, named, self.facts)
        path = item["fieldRef"]["fieldPath"]
        if path in ("metadata.labels", "metadata.annotations"):
            pairs = metadata.get(path.rpartition(".")[2], {})
            return "\n".join(f"{key}={json.dumps(pairs[key])}" for key in sorted(pairs))
        return field_value(path, self.facts)

    async def _token(self, source: Manifest) -> bytes:
        """A token of the pod's service account, asked for again before it ends."""
        token, renewal = self._tokens.get(source["path"], ("", datetime.min.replace(tzinfo=UTC)))
        if datetime.now(UTC) < renewal:
            return token.encode()
        life_s = source.get("expirationSeconds", TOKEN_LIFE_S)
        metadata, spec = self.facts.pod["metadata"], self.facts.pod["spec"]
        account = spec.get("serviceAccountName", "default")
        pod = {"kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "apiVersion": "v1"}
        audience = source.get("audience")
        answer = await self.kube.create(
            f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token",
            {
                "spec": {
                    "audiences": [audience] if audience else None,
                    "expirationSeconds": life_s,
                    "boundObjectRef": pod,
                }
            },
        )
        token = answer["status"]["token"]
        renewal = datetime.now(UTC) + timedelta(seconds=life_s * TOKEN_RENEWAL)
        self._tokens[source["path"]] = (token, renewal)
        return token.encode()


def _decoded(kind: str, manifest: Manifest) -> Mapping[str, bytes]:
    if kind == "Secret":
        return {key: b64decode(value) for key, value in manifest.get("data", {}).items()}
    texts = {key: value.encode() for key, value in manifest.get("data", {}).items()}
    return texts | {k: b64decode(v) for k, v in manifest.get("binaryData", {}).items()}


def _write(folder: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    """Each file changes as a whole, and only if it changed; what is no more is removed."""
    for path, (content, mode) in files.items():
        target = folder / path
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.new")
        new.touch(mode=0o600)
        new.write_bytes(content)
        new.chmod(mode)
        new.replace(target)
    for left in [p for p in folder.rglob("*") if p.is_file()]:
        if str(left.relative_to(folder)) not in files:
            left.unlink()
