"""Compact copies of the CRDs that tests validate against: tests/schemas/*.json.gz.

    python tools/schemas/crds.py                 KubeRay's and the secrets driver's, by Go's proxy
    python tools/schemas/crds.py FILE VERSION    any other, such as compute-class-api's

Kept is the schema of the stored version, without its descriptions, which are nine tenths of it.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

SCHEMAS = Path(__file__).parents[2] / "tests" / "schemas"
MODULES = {
    "github.com/ray-project/kuberay/ray-operator": ("v1.5.0", "v1.6.1"),
    "sigs.k8s.io/secrets-store-csi-driver": ("v1.4.8",),
}
KINDS = {"RayCluster", "RayJob", "RayService", "SecretProviderClass"}


def main(arguments: list[str]) -> None:
    if arguments:
        file, version = arguments
        _write(Path(file), version)
        return
    for module, versions in MODULES.items():
        for version in versions:
            for file in sorted((_folder(module, version) / "config/crd/bases").glob("*.yaml")):
                _write(file, version)


def _folder(module: str, version: str) -> Path:
    """Where Go keeps the module."""
    command = ["go", "mod", "download", "-json", f"{module}@{version}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["Dir"])


def _write(file: Path, version: str) -> None:
    for crd in _definitions(file):
        kind = crd["spec"]["names"]["kind"]
        (stored,) = (one for one in crd["spec"]["versions"] if one["storage"])
        schema = _bare(stored["schema"]["openAPIV3Schema"])
        target = SCHEMAS / f"{kind}-{version}.json.gz"
        text = json.dumps(schema, separators=(",", ":"))
        target.write_bytes(gzip.compress(text.encode(), mtime=0))  # the same file at every run


def _definitions(file: Path) -> Iterator[dict[str, Any]]:
    for document in yaml.safe_load_all(file.read_text()):
        kind = document["spec"]["names"]["kind"]
        if kind in KINDS or file.parent.name != "bases":
            yield document


def _bare(schema: Any) -> Any:
    """Without descriptions: those are texts, and a field of this name has a schema."""
    if isinstance(schema, list):
        return [_bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = schema.items()
    return {k: _bare(v) for k, v in kept if k != "description" or not isinstance(v, str)}


if __name__ == "__main__":
    main(sys.argv[1:])
