"""Capacity: compute classes, what pods may land on, and runs that outlive a host that is taken."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.gke.class_faults import NODE_POOL_LABEL, REFUSED_BESIDE_CLASS, faults
from infra.gke.compute_class import CLASS_LABEL
from infra.gke.version import CLASS_WITHOUT_AUTO_PROVISIONING, reaches
from infra.tpu.catalog import ACCELERATOR_LABEL, CHIP_RESOURCE, TOPOLOGY_LABEL
from policies.paths import parsed
from policies.pods import Pod, pods, shape, tpu_pods
from policies.pools import CLUSTER
from policies.rule import ADVISORY, MANDATORY, Context, kinds, rule
from policies.view import Fault, Item, MalformedError, Node

_Text = Annotated[str, Field(max_length=500)]


class _Form(BaseModel):
    """What is read of a class; other fields are the API's matter. An absent one is like empty."""

    model_config = ConfigDict(strict=True)


class _Tpu(_Form):
    type: _Text = ""
    count: int = 0
    topology: _Text = ""


class _Zones(_Form):
    zones: list[_Text] = []


class _Block(_Form):
    name: _Text = ""


class _Reserved(_Form):
    name: _Text = ""
    reservationBlock: _Block = _Block()  # noqa: N815 - the API's name, as below


class _Reservations(_Form):
    affinity: _Text = ""
    specific: list[_Reserved] = []


class _Enabled(_Form):
    enabled: bool = False


class _Placement(_Form):
    policyName: _Text = ""  # noqa: N815


class _Priority(_Form):
    tpu: _Tpu = _Tpu()
    spot: bool = False
    flexStart: _Enabled = _Enabled()  # noqa: N815
    reservations: _Reservations = _Reservations()
    maxRunDurationSeconds: int = 0  # noqa: N815
    location: _Zones = _Zones()
    placement: _Placement = _Placement()


class _Defaults(_Form):
    location: _Zones = _Zones()


class _Spec(_Form):
    whenUnsatisfiable: _Text = ""  # noqa: N815
    nodePoolAutoCreation: _Enabled = _Enabled()  # noqa: N815
    priorities: list[_Priority] = []
    priorityDefaults: _Defaults = _Defaults()  # noqa: N815


@rule(
    "capacity-class",
    "A compute class says all that GKE would guess, and every rung of it can be used.",
    why="GKE accepts nearly any class; its pods then wait for ever, or land where nobody wants.",
    levels=MANDATORY,
    over=kinds("ComputeClass"),
    pains=("P09", "P12"),
)
def _class(item: Item, context: Context) -> Iterator[Fault]:
    spec = item.root["spec"]
    if not any(priority["tpu"] for priority in spec["priorities"]):
        return
    _check_form(spec)
    groups = [_group(pod) for pod in _users(item, context) if shape(pod)]
    manifest = {"metadata": {"name": item.name}, "spec": spec.value}
    for problem in faults(manifest, groups):
        if problem.where.startswith("spec"):
            yield Fault(item, parsed(problem.where), problem.what, problem.fix)


def _check_form(spec: Node) -> None:
    for leaf in spec.leaves():
        _ = leaf.text  # raises if it is not known
    try:
        _Spec.model_validate(spec.value)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        wanted = fault["msg"].removeprefix("Input should be ")
        raise MalformedError((*spec.path, *fault["loc"]), wanted) from None


def _users(item: Item, context: Context) -> Iterable[Pod]:
    """TPU pods of the view that select the class."""
    everything = context.view.of("RayCluster", "RayJob", "RayService", "Job", "JobSet", "Pod")
    return [pod for one in everything for pod in tpu_pods(one) if pod.compute_class == item.name]


def _group(pod: Pod) -> dict[str, Any]:
    """As much of a worker group as is needed to say which rungs it can use."""
    accelerator, topology, chips = shape(pod) or ("", "", 0)
    selector = {
        CLASS_LABEL: pod.compute_class,
        ACCELERATOR_LABEL: accelerator,
        TOPOLOGY_LABEL: topology,
    }
    container = {"resources": {"limits": {CHIP_RESOURCE: str(chips)}}}
    spec = {"nodeSelector": selector, "containers": [container]}
    return {"groupName": pod.name, "template": {"spec": spec}}


@rule(
    "capacity-pin",
    "A pod leaves the choice of nodes to its compute class, and requires the class.",
    why="A pin beside a class defeats its fallback; a class that is preferred makes no nodes.",
    levels=MANDATORY,
    over=pods,
    pains=("P12",),
)
def _pin(pod: Pod, _: Context) -> Iterator[Fault]:
    # Google's own classes of Autopilot, such as Accelerator, are another thing.
    if pod.compute_class is not None and pod.compute_class.islower():
        for label, node in pod.selector.entries():
            if label in REFUSED_BESIDE_CLASS or label == NODE_POOL_LABEL:
                what = f"{label} beside a compute class leaves it no other rung"
                yield node.fault(what, "leave it out; the class decides")
    affinity = pod.spec["affinity"]["nodeAffinity"]
    for term in affinity["preferredDuringSchedulingIgnoredDuringExecution"]:
        for wish in term["preference"]["matchExpressions"]:
            if wish["key"].text == CLASS_LABEL:
                what = "a class that is only preferred makes no nodes"
                yield wish.fault(what, f"select {CLASS_LABEL} in nodeSelector")


@rule(
    "capacity-class-exists",
    "A pod's compute class is one of the stack's.",
    why="GKE makes no nodes for a class that is not there, and the pods wait for ever.",
    levels=MANDATORY,
    over=pods,
    pains=("P12",),
)
def _class_exists(pod: Pod, context: Context) -> Iterator[Fault]:
    """Only of a whole stack: the class of a single file may be in another."""
    name = pod.compute_class
    known = [item.name for item in context.view.of("ComputeClass")]
    if context.view.whole and name is not None and name not in known:
        at = pod.selector[CLASS_LABEL]
        yield at.fault(f"there is no compute class {name}", f"use {' or '.join(known) or 'pools'}")


@rule(
    "capacity-auto-creation",
    "A cluster whose classes make pools is of a version that can, or has auto-provisioning.",
    why="Before GKE 1.33.3-gke.1136000 a class with auto-creation makes nothing without the "
    "cluster's auto-provisioning.",
    levels=ADVISORY,
    over=kinds(CLUSTER),
    pains=("P12",),
)
def _auto_creation(item: Item, context: Context) -> Iterator[Fault]:
    made = [
        one
        for one in context.view.of("ComputeClass")
        if one.root["spec"]["nodePoolAutoCreation"]["enabled"].flag
    ]
    version = item.root["minMasterVersion"]
    if not made or version.text is None or item.root["enableAutopilot"].flag:
        return
    enabled = item.root["clusterAutoscaling"]["enabled"]
    needed = CLASS_WITHOUT_AUTO_PROVISIONING.version
    if not reaches(version.text, needed) and not enabled.flag:
        what = f"class {made[0].name} makes no nodes on {version.text}"
        yield enabled.fault(what, f"enable clusterAutoscaling, or ask for {needed}")


def tpu_jobs(item: Item) -> Iterable[Item]:
    return (item,) if item.kind == "RayJob" and tpu_pods(item) else ()


@rule(
    "capacity-job-ends",
    "A RayJob on TPU ends for good, and gives back its slices.",
    why="A job that never fails, or keeps its cluster when it has ended, keeps paid slices.",
    levels=MANDATORY,
    over=tpu_jobs,
    pains=("P19",),
)
def _ends(item: Item, _: Context) -> Iterator[Fault]:
    spec = item.root["spec"]
    if not spec["deletionStrategy"]:
        at = spec["shutdownAfterJobFinishes"]
        if not at.flag:
            yield at.fault("its cluster stays when it has ended", "write true")
        at = spec["ttlSecondsAfterFinished"]
        if at.number is None:
            yield at.fault("how long its cluster stays is not said", "write 0, or a few minutes")
    at = spec["activeDeadlineSeconds"]
    if not at.number:
        yield at.fault(
            "it may run, or wait for capacity, for ever", "write the most seconds it may take"
        )


@rule(
    "capacity-job-starts",
    "A RayJob on TPU gives up if it does not start.",
    why="A job that hangs before it runs has no other end than its whole deadline. The field is of "
    "KubeRay 1.6.",
    levels=ADVISORY,
    over=lambda item: (item,) if item.kind == "RayJob" and tpu_pods(item) else (),
    pains=("P19",),
)
def _starts(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["spec"]["preRunningDeadlineSeconds"]
    if not at.number:
        fix = "write how long capacity may take, if KubeRay is 1.6 or newer"
        yield at.fault("how long it may wait to run is not said", fix)


@rule(
    "capacity-job-submitter",
    "A RayJob on TPU is submitted by a job of its own.",
    why="A submitter beside the head that ends early keeps the job from ever failing (KubeRay "
    "1.5 and 1.6), and its slices stay.",
    levels=ADVISORY,
    over=tpu_jobs,
    pains=("P19",),
)
def _submitter(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["spec"]["submissionMode"]
    if at.text == "SidecarMode":
        yield at.fault("SidecarMode can hang for ever", "write K8sJobMode")
