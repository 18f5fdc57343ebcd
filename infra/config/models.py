"""What a stack file may say: one frozen model for each kind of entry, unknown keys refused.

A workload's entry is its Settings (workloads.settings) and, beside them, what ties it to the rest
of the stack. No limit or default of a setting is repeated here.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationInfo,
    field_validator,
)

from infra.names import Name, fault
from workloads.settings import DataSettings, ServeSettings, Settings, TrainSettings

Port = Annotated[int, Field(ge=1, le=65535)]


def _checked_path(path: str) -> str:
    scheme, separator, _ = path.partition("://")
    if not path.strip() or (separator and scheme != "gs"):
        raise fault("is no place that can be read", "write a folder or a gs:// address")
    return path


def _checked_storage(path: str) -> str:
    if not path.strip() or "://" in path:
        raise fault("is no folder of this machine", "write a path, or leave it out")
    return path


def _checked_key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise fault("cannot be sent as a bearer token", "use printable ASCII without spaces")
    return key


class Folder(Settings):
    """A folder that no workload of this stack wrote."""

    path: Annotated[str, AfterValidator(_checked_path)]
    """A local folder, relative to the project, or gs://."""


def _form(value: Any) -> str:
    """Tags in <>, since no key of the file looks so."""
    return "<folder>" if isinstance(value, dict | Folder) else "<name>"


Origin = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[Folder, Tag("<folder>")], Discriminator(_form)
]
"""The name of a workload, for what it writes, or {path: ...}."""


_LATER = ("gke", "autopilot", "existing")


def _checked_mode(mode: object) -> object:
    if mode in _LATER:
        raise fault("is not available yet: so far raytpu runs on one machine only", "use local")
    return mode


class LocalCluster(Settings):
    """Real Ray on this machine; TPU hosts are simulated on its CPUs."""

    mode: Annotated[Literal["local"], BeforeValidator(_checked_mode)]
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


class Kind(BaseModel):
    """What every workload's entry says: all that can be judged of one of an unknown kind."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: Name
    kind: Literal["data", "train", "serve"]


class DataSpec(DataSettings):
    name: Name
    kind: Literal["data"]

    def settings(self) -> DataSettings:
        return DataSettings(**self.model_dump(include=set(DataSettings.model_fields)))


class TrainSpec(TrainSettings):
    name: Name
    kind: Literal["train"]
    slice: str
    """Name of the slice. The run takes all of its copies."""
    data: Origin

    def settings(self) -> TrainSettings:
        return TrainSettings(**self.model_dump(include=set(TrainSettings.model_fields)))


class ServeSpec(ServeSettings):
    name: Name
    kind: Literal["serve"]
    slice: str
    """Name of the slice. Each of its copies holds one replica."""
    model: Origin
    api_key: Annotated[SecretStr, AfterValidator(_checked_key)] | None = None
    """Bearer token that clients must send. From a file on disk: its ciphertext."""

    def settings(self) -> ServeSettings:
        return ServeSettings(**self.model_dump(include=set(ServeSettings.model_fields)))


Workload = DataSpec | TrainSpec | ServeSpec
WORKLOADS: dict[str, type[Workload]] = {"data": DataSpec, "train": TrainSpec, "serve": ServeSpec}
