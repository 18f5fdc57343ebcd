"""What the image of a container means here, where nothing is pulled: programs of this machine.

An image is known by its repository; any tag of it is the same programs. Others are refused, as a
registry would that does not have them.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOST_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
RAY_HOME = "/home/ray"
RAY_CODE = f"{RAY_HOME}/raytpu"
"""As in images/ray/Dockerfile."""


@dataclass(frozen=True)
class Image:
    """Programs, and how they are started."""

    path: tuple[str, ...] = HOST_PATH
    environment: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"
    entrypoint: tuple[str, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders of this machine that a container sees, read-only, by where it sees them."""

    def variables(self) -> dict[str, str]:
        return {"PATH": ":".join(self.path), "HOME": "/root", **self.environment}


def repository(reference: str) -> str:
    """An image's name without tag and digest: a colon before a slash is a registry's port."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def ray_image() -> Image:
    """What images/ray builds, from this repository's environment."""
    environment = Path(sys.prefix)
    return Image(
        path=(f"{environment}/bin", *HOST_PATH),
        working_dir=RAY_CODE,
        folders={
            f"{RAY_CODE}/workloads": ROOT / "workloads",
            f"{RAY_CODE}/kubernetes": ROOT / "tools/cluster/absent/kubernetes",
            str(environment): environment,
            sys.base_prefix: Path(sys.base_prefix),
        },
        environment={
            "HOME": RAY_HOME,
            "PYTHONPATH": RAY_CODE,
            "PYTHONDONTWRITEBYTECODE": "1",  # the folders are read-only
            **SMALL_MACHINE,
        },
    )


SMALL_MACHINE = {
    # A slice's hosts start at once and share a few cores. Ray gives a raylet 30 s otherwise.
    "RAY_raylet_start_wait_time_s": "180",
    # A worker is started when a task wants it: the idle spares of many nodes cost minutes.
    "RAY_enable_worker_prestart": "0",
    # For a Prometheus that nobody runs here; it costs each host's agent a third of its time.
    "RAY_enable_metrics_collection": "0",
    # Ray makes workers yield to whatever else runs: here that is Ray's own bookkeeping, and the
    # hosts of one program wait for the one that yields.
    "RAY_worker_niceness": "0",
}
"""What Ray needs where many nodes share one machine."""


def program_image(program: Path) -> Image:
    """An image that is one program, such as the operator's."""
    return Image(entrypoint=(str(program),), folders={str(program.parent): program.parent})
