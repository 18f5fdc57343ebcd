"""How jobs are run, and those that take whole slices by themselves."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from infra.names import Name, checked_bucket
from infra.tpu.capacity import Duration
from workloads.program_settings import CheckSettings, SpmdSettings
from workloads.settings import PositiveInt, Settings


class JobTerms(Settings):
    """How a job is run on Kubernetes; the local stack always waits until it has finished."""

    wait_for: Literal["start", "finish"] = "start"
    """Until when `pulumi up` waits."""
    deadline: Duration = timedelta(days=1)
    """For the whole job, the wait for its slice included; then it is stopped."""
    start_deadline: Duration = timedelta(hours=1)
    """Until the job runs. Flex-start and queued capacity may need longer."""
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    """Each on a new Ray cluster, for a driver that dies. For lost hosts, see max_failures."""


class SliceJobTerms(JobTerms):
    """Of a job that computes on a slice."""

    slice_check: bool = False
    """Whether kind check's work comes first, whose faults end the job before it has begun."""


class SpmdSpec(SpmdSettings, SliceJobTerms):
    name: Name
    kind: Literal["spmd"]
    slice: str
    code: str | None = None
    """A folder with the program, for the local stack. On Kubernetes it is in the image."""
    checkpoint_every: PositiveInt | None = None
    """Steps between what the program keeps. For the policies, which ask for it on spot hosts."""
    reads: tuple[Annotated[str, AfterValidator(checked_bucket)], ...] = Field((), strict=False)
    """Buckets, or folders of them, to which the program is given access."""

    def settings(self) -> SpmdSettings:
        return SpmdSettings(**self.model_dump(include=set(SpmdSettings.model_fields)))


class CheckSpec(CheckSettings, JobTerms):
    name: Name
    kind: Literal["check"]
    slice: str

    def settings(self) -> CheckSettings:
        return CheckSettings(**self.model_dump(include=set(CheckSettings.model_fields)))
