"""Settings of what takes whole slices by itself: one's own program, and the check of a slice."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from workloads.settings import PositiveInt, Settings


class CheckSettings(Settings):
    """A look at each host of a slice, and at what connects them, before something relies on it."""

    sizes_mib: Annotated[tuple[PositiveInt, ...], Field(min_length=1, strict=False)] | None = None
    """Sizes of the collectives: what each device ends up with. By default 1, 8 and 64; on CPU
    devices, which share one machine's memory, 1."""
    repeats: PositiveInt = 10
    """Calls of each, of which the median counts."""
    slow_factor: Annotated[float, Field(gt=1)] = 1.5
    """A host is too slow whose products of matrices take so many times as long as the median of
    the others. Hosts that share a machine are not compared."""
    limit_s: PositiveInt = 600
    """For the whole check once it has the slice; then it says which host it waits for."""


_PROGRAM = re.compile(r"[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?|[^\s:]+\.py")
_SECRET = re.compile(r"(?i)(^|_)(password|secret|token|credentials?|key)$")
_NUMBERING = {
    *("TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_NAME", "TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE"),
    *("MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID"),
    *("JAX_COORDINATOR_ADDRESS", "RAYTPU_SLICE", "RAYTPU_OUTPUT", "RAYTPU_ATTEMPT"),
}


def _fault(what: str, fix: str) -> PydanticCustomError:
    """In the form of infra.names.fault."""
    return PydanticCustomError("user", "{what}; {fix}", {"what": what, "fix": fix})


def _checked_program(program: str) -> str:
    if not _PROGRAM.fullmatch(program):
        fix = "write package.module:function, package.module or FILE.py"
        raise _fault("names no program", fix)
    return program


def _checked_variable(name: str) -> str:
    if not name.isidentifier() or not name.isascii():
        raise _fault("is no name of a variable", "use A-Z, 0-9 and _")
    if _SECRET.search(name):
        fix = "let the program read it from Secret Manager"
        raise _fault("seems to be a secret, and manifests and logs show variables", fix)
    if name in _NUMBERING:
        raise _fault("is set for each host, by GKE or by Ray", "leave it out")
    return name


class SpmdSettings(Settings):
    """A program of one's own that runs on each host of a slice at once, JAX over all of them."""

    program: Annotated[str, AfterValidator(_checked_program)]
    """package.module:function, called with a Context when JAX is up; or package.module or FILE.py,
    run as a script that calls jax.distributed.initialize() itself, without arguments."""
    args: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further arguments of the function, or those of the script's command line."""
    env: dict[Annotated[str, AfterValidator(_checked_variable)], str] = Field(default_factory=dict)
    """Variables of each host's process, there before JAX is imported. No secrets: they are in
    manifests and logs."""
    max_failures: Annotated[int, Field(ge=0)] = 3
    """Lost hosts or crashes after which the run is given up. Each ends the program on all hosts,
    and the next attempt starts it on all of them."""
    quiet_limit_s: PositiveInt = 3600
    """The program counts as hung when its first host has printed nothing for so long."""
