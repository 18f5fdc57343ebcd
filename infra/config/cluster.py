"""Where a stack runs: `raytpu:cluster`, one model for each mode."""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
)

from infra.config.maintenance import Maintenance
from infra.config.parse import is_mapping
from infra.gke.addresses import Cidr, NetworkSettings
from infra.gke.version import GkeVersion
from infra.names import NOT_EMPTY, Name, Project, checked_bucket, fault, matching
from infra.tpu.capacity import Zone
from workloads.settings import PositiveInt, Settings

Port = Annotated[int, Field(ge=1, le=65535)]

AUTOPILOT_CPU_NODES = 64
OWN_LABELS = frozenset({"environment", "team", "cost_center", "managed_by", "slice"})
"""What the stack labels its resources with, by its own entries."""

_LABEL = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_LABEL_VALUE = re.compile(r"[-_a-z0-9]{0,63}")


def _checked_storage(path: str) -> str:
    if not path.strip() or "://" in path:
        raise fault("is no folder of this machine", "write a path, or leave it out")
    return path


def region(place: str) -> str:
    """Of a region or zone."""
    return "-".join(place.split("-")[:2])


def _checked_version(text: str) -> str:
    GkeVersion.parse(text)
    return text


def _checked_labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if not (_LABEL.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise fault(
                "has a key or value that Google refuses as a label",
                "use at most 63 of a-z, 0-9, '-' and '_', keys beginning with a letter",
            )
    if taken := sorted(OWN_LABELS & labels.keys()):
        raise fault(f"sets {' and '.join(taken)}, as the stack does itself", "use other keys")
    return labels


Location = Annotated[
    str,
    matching(
        r"[a-z]+-[a-z]+\d+(-(ai\d+)?[a-z])?",
        "is no region or zone of Google Cloud",
        "write one such as us-east5",
    ),
]
MachineType = Annotated[
    str,
    matching(
        r"(?![ag]\d)[a-z]\d[a-z]?-[a-z]+-\d+",
        "is no machine type without accelerators",
        "write one such as n2-standard-8",
    ),
]
Version = Annotated[str, AfterValidator(_checked_version)]
KubeRayVersion = Annotated[
    str,
    matching(
        r"1\.([5-9]|\d\d)",
        "is no version of KubeRay with labels of worker groups",
        'write major and minor, "1.5" or later',
    ),
]


class LocalCluster(Settings):
    """Real Ray on this machine; TPU hosts are simulated on its CPUs."""

    mode: Literal["local"]
    storage: Annotated[str, AfterValidator(_checked_storage)] | None = None
    """Folder for data, checkpoints and models; by default .raytpu/<stack>/storage."""
    serve_port: Port | None = None
    """By default a free port, as for the dashboard."""
    dashboard_port: Port | None = None

    @field_validator("dashboard_port")
    @classmethod
    def _is_not_the_other(cls, port: int | None, info: ValidationInfo) -> int | None:
        if port is not None and port == info.data.get("serve_port"):
            raise fault("is also serve_port", "choose another port")
        return port

    def folder(self, stack: str) -> str:
        """Of the stack's data, checkpoints and models, relative to the project."""
        return self.storage or f".raytpu/{stack}/storage"


class AuthorizedNetwork(Settings):
    name: Name
    cidr: Cidr


class CpuPool(Settings):
    """Nodes for what needs no TPU: Ray heads, data jobs and the system's own pods."""

    machine_type: MachineType = "n2-standard-8"
    min_nodes: PositiveInt = 1
    max_nodes: Annotated[PositiveInt, Field(validate_default=True)] = 4
    """Over all zones."""

    @field_validator("max_nodes")
    @classmethod
    def _holds_the_least(cls, most: int, info: ValidationInfo) -> int:
        least = info.data.get("min_nodes", most)
        if most < least:
            raise fault(f"is less than min_nodes, {least}", f"use {least} or more")
        return most


class GoogleCluster(Settings):
    """What the modes that make a cluster share."""

    project: Project
    location: Location
    """A region, or a zone for a control plane in that zone only."""
    zones: Annotated[tuple[Zone, ...], Field(strict=False), NOT_EMPTY]
    """Of the nodes; slices are asked for in this order."""
    release_channel: Literal["rapid", "regular", "stable"] = "regular"
    version: Version | None = None
    """The control plane's least version; by default the channel's own."""
    kuberay: KubeRayVersion = "1.5"
    """Of the Ray operator add-on. GKE documents no table; see the label app.kubernetes.io/version
    of its CRDs. Fields of newer versions are left out."""
    deletion_protection: bool | None = None
    """By default on for the environment prod, and off for all others."""
    network: NetworkSettings = NetworkSettings()
    authorized_networks: tuple[AuthorizedNetwork, ...] = Field(default=(), strict=False)
    """From where the control plane's address may be reached. Without one, it is reached by name
    alone, which Google guards with its own identities."""
    maintenance: Maintenance = Maintenance()
    labels: Annotated[dict[str, str], AfterValidator(_checked_labels)] = {}  # noqa: RUF012 - pydantic copies it

    @property
    def region(self) -> str:
        return region(self.location)


class GkeCluster(GoogleCluster):
    """GKE Standard: this stack makes the node pools, or GKE by compute classes."""

    mode: Literal["gke"]
    cpu_pool: CpuPool = CpuPool()

    @property
    def cpu_nodes(self) -> int:
        """The most nodes without TPU."""
        return self.cpu_pool.max_nodes


class AutopilotCluster(GoogleCluster):
    """GKE Autopilot: no node pools; every slice comes by a compute class."""

    mode: Literal["autopilot"]

    @field_validator("location")
    @classmethod
    def _is_a_region(cls, location: str) -> str:
        if location != region(location):
            what = "is a zone, and Autopilot clusters lie in a region"
            raise fault(what, f"write {region(location)}")
        return location

    @property
    def cpu_nodes(self) -> int:
        """The most nodes without TPU that have addresses: GKE makes what the pods need."""
        return AUTOPILOT_CPU_NODES


class ExistingCluster(Settings):
    """A cluster that others made: only Kubernetes objects are made in it."""

    mode: Literal["existing"]
    storage: Annotated[str, AfterValidator(checked_bucket)]
    """Bucket for data, checkpoints and models."""
    kubeconfig: str | None = None
    """File; by default $KUBECONFIG, else ~/.kube/config."""
    context: str | None = None
    """Of that file; by default its current one."""
    zones: tuple[Zone, ...] = Field(default=(), strict=False)
    """Of the TPU nodes that compute classes ask for; without, GKE chooses."""
    version: Version | None = None
    kuberay: KubeRayVersion = "1.5"


Cluster = LocalCluster | GkeCluster | AutopilotCluster | ExistingCluster
Mode = Literal["local", "gke", "autopilot", "existing"]


class AnyCluster(BaseModel):
    """All that can be judged of a cluster without a mode that exists."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    mode: Mode


def _tag(value: Any) -> str:
    mode = value.get("mode") if is_mapping(value) else getattr(value, "mode", None)
    return f"<{mode}>" if mode in get_args(Mode) else "<any>"


Declared = Annotated[
    Annotated[LocalCluster, Tag("<local>")]
    | Annotated[GkeCluster, Tag("<gke>")]
    | Annotated[AutopilotCluster, Tag("<autopilot>")]
    | Annotated[ExistingCluster, Tag("<existing>")]
    | Annotated[AnyCluster, Tag("<any>")],
    Discriminator(_tag),
]
"""What the file says: AnyCluster never parses."""
