"""What an application is told by Serve's declarative config, whatever its engine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from workloads.contract import SliceContract, told_devices
from workloads.model.config import ModelError
from workloads.settings import MeshSettings, ServeSettings


class ServeArgs(BaseModel):
    """`args` of an application."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slice: SliceContract
    settings: ServeSettings
    model_name: str = Field(min_length=1)
    replicas: int = Field(ge=1, default=1)
    """Copies of the model; each takes one of the declared slices."""
    api_key_file: Path | None = None

    @field_validator("slice", mode="before")
    @classmethod
    def _contract(cls, raw: Any) -> Any:
        return SliceContract.from_json(json.dumps(raw)) if isinstance(raw, Mapping) else raw

    @property
    def mesh(self) -> MeshSettings:
        return self.settings.mesh_on(self.slice.devices_per_slice)

    def faults_of_shape(self) -> list[str]:
        """Where mesh or replicas do not cover the slice."""
        tpu, mesh, faults = self.slice, self.mesh, []
        if mesh.devices != tpu.devices_per_slice:
            devices = told_devices(tpu.devices_per_slice, tpu.devices_per_chip)
            faults.append(f"mesh {mesh} is {mesh.devices}, but slice {tpu.name} has {devices}")
        if self.replicas > tpu.slices:
            faults.append(
                f"{self.replicas} replicas need a slice each, but {tpu.name} declares {tpu.slices}"
            )
        return faults


Args = TypeVar("Args", bound=ServeArgs)


def read(kind: type[Args], raw: Mapping[str, Any]) -> Args:
    """Raises ModelError that lists every fault."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
    places = [".".join(map(str, fault["loc"])) for fault in faults]
    told = [fault["msg"].removeprefix("Value error, ") for fault in faults]
    raise ModelError(
        "serve",
        [f"{place}: {what}" if place else what for place, what in zip(places, told, strict=True)],
    )
