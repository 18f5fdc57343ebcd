"""What a stack file may say: one frozen model for each kind of entry, unknown keys refused.

A workload's entry is its Settings (workloads.settings) and, beside them, what ties it to the rest
of the stack. No limit or default of a setting is repeated here.
"""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
)

from infra.config.jobs import CheckSpec, JobTerms, SliceJobTerms, SpmdSpec
from infra.config.parse import is_mapping
from infra.names import Name, checked_bucket, fault, matching
from infra.tpu.capacity import Duration
from infra.tpu.slice import TpuSlice
from workloads.settings import (
    DataSettings,
    InferSettings,
    PositiveInt,
    ServeSettings,
    Settings,
    TrainSettings,
)

_IMAGE = re.compile(
    r"[a-z0-9][-._/a-z0-9]*(:\d+/[-._/a-z0-9]+)?(:[\w][-.\w]{0,127}|@sha256:[0-9a-f]{64})"
)


def _checked_namespace(name: str) -> str:
    if name == "default" or name.startswith(("kube-", "gke-", "gmp-")):
        raise fault("is a namespace of the cluster itself", "write one of the team's own")
    return name


def _checked_path(path: str) -> str:
    scheme, separator, _ = path.partition("://")
    if not path.strip() or (separator and scheme != "gs"):
        raise fault("is no place that can be read", "write a folder or a gs:// address")
    return checked_bucket(path) if separator else path


def _checked_secret(key: SecretStr) -> SecretStr:
    text = key.get_secret_value()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise fault("cannot be sent as a key or password", "use printable ASCII without spaces")
    return key


def _checked_image(image: str) -> str:
    if not _IMAGE.fullmatch(image):
        raise fault("names no fixed image", "write REPOSITORY:TAG or REPOSITORY@sha256:DIGEST")
    if image.endswith(":latest"):
        raise fault("may be another image tomorrow", "write a version's tag, or a digest")
    return image


Namespace = Annotated[Name, AfterValidator(_checked_namespace)]
CostCenter = Annotated[
    str,
    matching(
        r"[-_a-z0-9]{1,63}",
        "is refused by Google as a label's value",
        "use at most 63 of a-z, 0-9, '-' and '_'",
    ),
]
Address = Annotated[
    str,
    matching(
        r"[^@\s:]+@[^@\s:]+\.[^@\s:.]+",
        "is no address of an account or group",
        "write one such as team@example.com",
    ),
]
Secret = Annotated[SecretStr, AfterValidator(_checked_secret)]
Image = Annotated[str, AfterValidator(_checked_image)]


class Folder(Settings):
    """A folder that no workload of this stack wrote."""

    path: Annotated[str, AfterValidator(_checked_path)]
    """A local folder, relative to the project, or gs://."""


class Hub(Settings):
    """A model of Hugging Face's hub."""

    hub: Annotated[
        str,
        matching(
            r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}",
            "is no model of the hub",
            "write OWNER/NAME, such as Qwen/Qwen3-4B",
        ),
    ]
    weights_gib: PositiveInt | None = None
    """Size of what is stored, where the name does not say it, or says more."""


def _name_or_folder(value: Any) -> str:
    return "<folder>" if isinstance(value, Folder) or is_mapping(value) else "<name>"


def _form(value: Any) -> str:
    if isinstance(value, Hub) or (is_mapping(value) and "hub" in value):
        return "<hub>"
    return _name_or_folder(value)


Origin = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[Folder, Tag("<folder>")],
    Discriminator(_name_or_folder),
]
"""The name of a workload, for what it writes, or {path: ...}."""
ModelOrigin = Annotated[
    Annotated[str, Tag("<name>")]
    | Annotated[Folder, Tag("<folder>")]
    | Annotated[Hub, Tag("<hub>")],
    Discriminator(_form),
]
"""As Origin, or {hub: ...}."""


class Team(Settings):
    """Whose stack it is: one namespace with its own quota and access."""

    name: Namespace
    cost_center: CostCenter
    namespace: Namespace | None = None
    """By default the team's name."""
    members: tuple[Address, ...] = Field(default=(), strict=False)
    """Google accounts or groups (an address each) that may work in the namespace."""
    max_chips: PositiveInt | None = None
    """Of the namespace's quota; by default what this stack declares, and no more."""
    max_usd_per_month: PositiveInt | None = None
    """The stack's budget, which `raytpu cost` holds its price against."""


class Images(Settings):
    """Container images, by tag or digest."""

    ray: Image
    """Ray, JAX and this project's workloads: see images/."""
    vllm: Image | None = None
    """The same with vLLM for TPU, for workloads with engine vllm."""


class Redis(Settings):
    """Where the head keeps what must outlive it (Ray's GCS fault tolerance)."""

    address: Annotated[
        str,
        matching(
            r"rediss?://[A-Za-z0-9][-.A-Za-z0-9]{0,252}:[1-9]\d{0,4}",
            "is no address of a Redis server",
            "write redis://HOST:PORT, and a password under password",
        ),
    ]
    password: Secret | None = None
    """From a file on disk: its ciphertext."""


class Kind(BaseModel):
    """What every workload's entry says: all that can be judged of one of an unknown kind."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: Name
    kind: Literal["data", "train", "serve", "infer", "spmd", "check", "cluster"]


class DataSpec(DataSettings, JobTerms):
    name: Name
    kind: Literal["data"]
    tokenizer: Folder | None = None
    """Of a model or a corpus, whose tokenizer.json packs the text. By default one is trained."""
    workers: PositiveInt = 1
    """Pods without TPU, on Kubernetes."""
    keep_for: Duration = timedelta(hours=1)
    """How long they stay to be looked at after the job's end. A training run's slices never do."""

    def settings(self) -> DataSettings:
        return DataSettings(**self.model_dump(include=set(DataSettings.model_fields)))


class TrainSpec(TrainSettings, SliceJobTerms):
    name: Name
    kind: Literal["train"]
    slice: str
    """Name of the slice. The run takes all of its copies."""
    min_slices: PositiveInt | None = None
    """Fewest copies of the slice with which the run goes on while others are lost, until they are
    back. By default it waits for all of them."""
    fallback_after: Duration = timedelta(minutes=15)
    """How long the run waits for its slice before it takes the slice's next fallback, if it has
    any, and for each of those in turn."""
    data: Origin
    base: Origin | None = None
    """What the run starts from: a train workload above, or a Qwen3 checkpoint in Hugging Face's
    layout. By default random weights."""

    def settings(self) -> TrainSettings:
        return TrainSettings(**self.model_dump(include=set(TrainSettings.model_fields)))


class ServeSpec(ServeSettings):
    name: Name
    kind: Literal["serve"]
    slice: str
    """Name of the slice. Each of its copies holds one replica, or each part of it."""
    replica_topology: str | None = None
    """Of the parts, such as 2x4 of a 4x4, if a replica needs fewer chips than a slice has."""
    model: ModelOrigin
    api_key: Secret | None = None
    """Bearer token that clients must send. From a file on disk: its ciphertext."""
    startup_timeout: Duration = timedelta(minutes=45)
    """For weights and the first compilation, which takes up to 30 minutes on a TPU."""
    upgrade: Literal["in_place", "new_cluster"] = "in_place"
    """Of another image or slice: the running cluster is replaced, or served from until a second
    one, with slices of its own, is ready."""
    redis: Redis | None = None

    def replica(self, tpu: TpuSlice) -> TpuSlice:
        """What replicas take of the slice that is named: its copies, or all of their parts."""
        part = self.replica_topology
        return tpu.part(part) if part and part in tpu.part_topologies else tpu

    def settings(self) -> ServeSettings:
        return ServeSettings(**self.model_dump(include=set(ServeSettings.model_fields)))


class InferSpec(InferSettings, SliceJobTerms):
    name: Name
    kind: Literal["infer"]
    slice: str
    """Name of the slice. The job takes all of its copies."""
    model: Origin

    def settings(self) -> InferSettings:
        return InferSettings(**self.model_dump(include=set(InferSettings.model_fields)))


class ClusterSpec(Settings):
    """A Ray cluster to work on by hand, until it is taken out of the stack."""

    name: Name
    kind: Literal["cluster"]
    slice: str
    idle_timeout: Duration = timedelta(minutes=30)
    """After so long without work a slice is given back."""


SliceJobSpec = TrainSpec | InferSpec | SpmdSpec | CheckSpec
JobSpec = DataSpec | SliceJobSpec
"""What ends by itself."""
Workload = JobSpec | ServeSpec | ClusterSpec
WORKLOADS: dict[str, type[Workload]] = {
    "data": DataSpec,
    "train": TrainSpec,
    "serve": ServeSpec,
    "infer": InferSpec,
    "spmd": SpmdSpec,
    "check": CheckSpec,
    "cluster": ClusterSpec,
}
