"""What is compiled and what came of it: the words between `raytpu preflight` and the compiler.

Imports no JAX: whoever asks need not hold a compiler.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from workloads.model.config import ModelConfig
from workloads.settings import MeshSettings, PositiveInt, ServeSettings, Settings, TrainSettings

# They decide how long a run is or which constants a program holds, and none of what is measured.
IDLE_SETTINGS = {
    "steps",
    "learning_rate",
    "warmup_steps",
    "weight_decay",
    "gradient_clip",
    "evaluate_every",
    "checkpoint_every",
    "keep_checkpoints",
    "log_every",
    "max_failures",
    "profile",
    "seed",
}


class Chips(Settings):
    """What to compile for: identical slices."""

    generation: str
    """Its short name, which is libtpu's as well."""
    topology: str
    host_topology: str
    """The shape of one VM's chips."""
    slices: PositiveInt
    devices: PositiveInt
    """Of all slices, as JAX sees them."""
    hbm_gib_per_device: PositiveInt

    @property
    def hbm_bytes(self) -> int:
        """Of a device."""
        return self.hbm_gib_per_device * 2**30


class TrainStep(Settings):
    kind: Literal["train"] = "train"
    chips: Chips
    model: ModelConfig
    sequence_length: PositiveInt
    settings: TrainSettings

    @property
    def mesh(self) -> MeshSettings:
        return self.settings.mesh

    def decisive(self) -> dict[str, Any]:
        """All that can change what is measured."""
        return self.model_dump(mode="json", exclude={"settings": IDLE_SETTINGS})


class ServeStep(Settings):
    kind: Literal["prefill", "decode"]
    """The longest prompt, or a token more for each row."""
    chips: Chips
    model: ModelConfig
    settings: ServeSettings

    @property
    def mesh(self) -> MeshSettings:
        return self.settings.mesh_on(self.chips.devices)

    def decisive(self) -> dict[str, Any]:
        """All that can change what is measured."""
        return self.model_dump(mode="json")


Program = Annotated[TrainStep | ServeStep, Field(discriminator="kind")]


class Collective(Settings):
    """All collectives of one kind over groups of one size, in one step, as a device sees them."""

    kind: Literal[
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "dcn"
    ]
    """Between devices of a slice; `dcn` is what crosses the network between slices."""
    group: PositiveInt
    """Devices that take part; of dcn, slices."""
    count: PositiveInt
    payload_bytes: int
    """Of all-gather what comes out, of the others what goes in."""


class Measured(Settings):
    """One program on one device."""

    argument_bytes: int
    """Parameters, the optimizer's state or the cache, and the tokens."""
    hbm_bytes: int | None
    """All that it needs at once; unknown if the arguments alone are too many."""
    limit_bytes: int
    """What it may need: of the catalogue, or what the compiler leaves of that."""
    flops: float | None = None
    """Of its matrix products."""
    traffic_bytes: float | None = None
    """To and from HBM, by the compiler's own account."""
    collectives: tuple[Collective, ...] = ()
    unknown_loops: int = 0
    """Loops around collectives whose number of rounds is not known; they count as one."""
    compile_s: float | None = None

    @property
    def fits(self) -> bool:
        return self.hbm_bytes is not None and self.hbm_bytes <= self.limit_bytes


class Answer(Settings):
    """What the compiler says of one program: the one or the other."""

    measured: Measured | None = None
    refused: str | None = None
    """Why it could not be compiled, in a line."""
    cached: bool = False


PROGRAM: TypeAdapter[TrainStep | ServeStep] = TypeAdapter(Program)
