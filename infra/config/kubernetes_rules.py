"""What must be right for workloads that run on Kubernetes, each on a Ray cluster of its own."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations

from infra.config.cluster import AutopilotCluster, ExistingCluster, GkeCluster
from infra.config.entries import Entries
from infra.config.models import DataSpec, Folder, Hub, InferSpec
from infra.config.parse import is_mapping
from infra.errors import Problem, quote
from infra.names import is_in_bucket
from infra.tpu.capacity import written

WHOLE_SLICES = (1, 6)
"""The version of KubeRay from which a lost host takes its slice with it (gate
RayMultiHostIndexing), and a RayJob can have a deadline for its start."""
FIRST_COMPILE = timedelta(minutes=30)
"""What vLLM's first compilation for a TPU was reported to take (vllm-project/vllm 7533)."""


def faults(entries: Entries) -> Iterator[Problem]:
    rules = (
        _missing,
        _taken_names,
        _fallbacks_alike_to_ray,
        _names_of_fallbacks,
        _unused_fallbacks,
        _slices_used_twice,
        _unreachable_folders,
        _hub_without_vllm,
        _unchecked_keys,
        _late_starts,
        _small_quota,
        _second_clusters,
    )
    for rule in rules:
        yield from rule(entries)


def remarks(entries: Entries) -> Iterator[Problem]:
    for where, server in entries.served.items():
        if server.startup_timeout < FIRST_COMPILE:
            yield Problem(
                f"{where}.startup_timeout",
                f"{written(server.startup_timeout)} is less than a first compilation may take",
                f"{written(FIRST_COMPILE)} or more do not give up too early",
            )
    kuberay = _kuberay(entries)
    if kuberay is None or kuberay >= WHOLE_SLICES:
        return
    version = ".".join(map(str, kuberay))
    newer = ".".join(map(str, WHOLE_SLICES))
    for where, job in entries.jobs.items():
        if "start_deadline" in job.model_fields_set:
            what = f"is left out: KubeRay {version} has no deadline for a job's start"
            yield Problem(f"{where}.start_deadline", what, f"deadline holds; {newer} has both")
    split = [shape.name for _, shape in entries.shapes if shape.multi_host]
    if split:
        yield Problem(
            "raytpu:cluster.kuberay",
            f"{version} replaces a lost host of {', '.join(split)} without the other hosts",
            f"{newer} replaces the slice as a whole",
        )


def _kuberay(entries: Entries) -> tuple[int, ...] | None:
    match entries.cluster:
        case GkeCluster() | AutopilotCluster() | ExistingCluster():
            return tuple(int(part) for part in entries.cluster.kuberay.split("."))
        case _:
            return None


def _missing(entries: Entries) -> Iterator[Problem]:
    """What only the local stack can do without."""
    for key, why in {
        "team": "the team's name and cost_center, for its namespace and its bill",
        "images": "the workloads' image as images: {ray: REPOSITORY:TAG}",
    }.items():
        if key not in entries.raw:
            yield Problem(f"raytpu:{key}", "is missing", f"add {why}")
    images = entries.raw.get("images")
    users = [server.name for server in entries.served.values() if server.engine == "vllm"]
    if users and is_mapping(images) and images.get("vllm") is None:
        names = ", ".join(map(entries.scope.quote, users))
        fix = f"add the image for engine vllm, which {names} use"
        yield Problem("raytpu:images.vllm", "is missing", fix)


def _taken_names(entries: Entries) -> Iterator[Problem]:
    """A workload's name is also its service account's, to which its rights are given."""
    for where, workload in entries.workloads.items():
        if workload.name == "default":
            yield entries.scope.problem(
                f"{where}.name",
                workload.name,
                "is the service account of all pods in the namespace that name no other",
                "choose another",
            )


def _fallbacks_alike_to_ray(entries: Entries) -> Iterator[Problem]:
    """Ray reserves slices by pod type alone, so in one cluster that must mean one shape."""
    for where, tpu in entries.slices.items():
        places = [where, *(f"{where}.fallback[{i}]" for i in range(len(tpu.fallback)))]
        for (first, one), (place, other) in combinations(zip(places, tpu.shapes, strict=True), 2):
            if (one.topology, one.machine) == (other.topology, other.machine):
                what = f"{other.topology} on {other.machine.name} is also the shape of {first}"
                yield Problem(place, what, "add its capacity to that of the first")
            elif one.pod_type == other.pod_type:
                yield Problem(
                    place,
                    f"{other.topology} on {other.machine.name} and {one.topology} on "
                    f"{one.machine.name} of {first} are both {one.pod_type} to Ray, which reserves "
                    "slices by that name alone",
                    "use another number of chips",
                )


def _names_of_fallbacks(entries: Entries) -> Iterator[Problem]:
    """A shape is known by its name: to Ray, to its compute class, to its workload policy."""
    made = {
        other.name: f"{where}.fallback[{index}]"
        for where, tpu in entries.slices.items()
        for index, other in enumerate(tpu.fallback)
    }
    for where, tpu in entries.slices.items():
        if tpu.name in made:
            what = f"{quote(tpu.name)} is also the name that {made[tpu.name]} gets"
            yield Problem(f"{where}.name", what, "choose another")


def _unused_fallbacks(entries: Entries) -> Iterator[Problem]:
    """What these compute is of one shape. A run has a mesh for each: see fallback_rules."""
    jobs = {**entries.inferred, **entries.programs}
    for where, workload in {**jobs, **entries.served}.items():
        tpu = entries.slice_of(workload)
        if tpu and tpu.fallback:
            yield entries.scope.problem(
                f"{where}.slice",
                workload.slice,
                f"has a fallback, and a workload of kind {workload.kind} asks for "
                f"{tpu.topology} on {tpu.machine.name} alone",
                "leave fallback out; kinds train and cluster choose among the shapes",
            )


def _slices_used_twice(entries: Entries) -> Iterator[Problem]:
    """Pods are placed one by one: of two clusters each may get a part, and both wait for ever."""
    users: dict[str, str] = {}
    for where, workload in entries.on_tpu.items():
        user = users.setdefault(workload.slice, where)
        if user != where:
            yield entries.scope.problem(
                f"{where}.slice",
                workload.slice,
                f"is also the slice of {user}: each could hold a part of it and wait for the rest",
                "declare another slice",
            )


def _unreachable_folders(entries: Entries) -> Iterator[Problem]:
    what, fix = "is on this machine, which no pod can read", "use a gs:// address"
    for place, source in _inputs(entries):
        if not source.startswith("gs://"):
            yield entries.scope.problem(place, source, what, fix)
        elif not is_in_bucket(source):
            fault = "names no bucket, to which the job could be given access"
            yield entries.scope.problem(place, source, fault, "write gs://BUCKET/FILES")
    origins = {f"{where}.data": one.data for where, one in entries.trained.items()}
    bases = {f"{where}.base": one.base for where, one in entries.trained.items()}
    data = {w: one for w, one in entries.workloads.items() if isinstance(one, DataSpec)}
    tokenizers = {f"{where}.tokenizer": one.tokenizer for where, one in data.items()}
    users = {**entries.served, **entries.inferred}
    models = {f"{where}.model": one.model for where, one in users.items()}
    for where, origin in {**origins, **bases, **tokenizers, **models}.items():
        if isinstance(origin, Folder) and not origin.path.startswith("gs://"):
            yield entries.scope.problem(f"{where}.path", origin.path, what, fix)


def _inputs(entries: Entries) -> Iterator[tuple[str, str]]:
    """Places and names of files that jobs read."""
    for where, workload in entries.workloads.items():
        match workload:
            case DataSpec(sources=names):
                yield from ((f"{where}.sources[{i}]", name) for i, name in enumerate(names))
            case InferSpec(prompts=names):
                yield from ((f"{where}.prompts[{i}]", name) for i, name in enumerate(names))
            case _:
                pass


def _hub_without_vllm(entries: Entries) -> Iterator[Problem]:
    for where, server in entries.served.items():
        if isinstance(server.model, Hub) and server.engine == "jax":
            yield entries.scope.problem(
                f"{where}.model.hub",
                server.model.hub,
                "cannot be loaded by engine jax, which takes what this stack trained",
                "use engine vllm, the name of a train workload, or {path: gs://...}",
            )


def _unchecked_keys(entries: Entries) -> Iterator[Problem]:
    for where, server in entries.served.items():
        if server.api_key is not None and server.engine == "vllm":
            yield Problem(
                f"{where}.api_key",
                "would be asked of no client: vLLM's endpoint under Ray Serve checks none",
                "leave it out and put a gateway before the service, or use engine jax",
            )


def _late_starts(entries: Entries) -> Iterator[Problem]:
    for where, job in entries.jobs.items():
        if job.deadline <= job.start_deadline:
            show = entries.scope.show
            yield Problem(
                f"{where}.deadline",
                f"{show(written(job.deadline))} leaves no time to run: start_deadline is "
                f"{show(written(job.start_deadline))}",
                "use a longer deadline, or a shorter start_deadline",
            )


def _small_quota(entries: Entries) -> Iterator[Problem]:
    declared = sum(tpu.most_chips for tpu in entries.slices.values())
    if entries.max_chips is not None and entries.max_chips < declared:
        parts = " + ".join(f"{tpu.most_chips} of {tpu.name}" for tpu in entries.slices.values())
        yield Problem(
            "raytpu:team.max_chips",
            f"{entries.max_chips} is less than the {declared} chips that the stack declares "
            f"({parts})",
            f"use {declared} or more, or leave it out",
        )


def _second_clusters(entries: Entries) -> Iterator[Problem]:
    """A second cluster beside the first asks for as many slices again, which must be there."""
    declared = sum(tpu.most_chips for tpu in entries.slices.values())
    for where, server in entries.served.items():
        tpu = entries.slice_of(server)
        if tpu is None or server.upgrade == "in_place":
            continue
        place, wanted = f"{where}.upgrade", declared + tpu.most_chips
        more = f"asks for {tpu.most_chips} chips beside the {tpu.most_chips} in use"
        if tpu.provision == "node_pools" and isinstance(entries.cluster, GkeCluster):
            what = f"{more}, and the node pools of slice {quote(tpu.name)} hold no second set"
            fix = "use in_place, or provision: compute_class on the slice"
            yield entries.scope.problem(place, server.upgrade, what, fix)
        if entries.max_chips is not None and entries.max_chips < wanted:
            what = f"{more}, {wanted} in all, and raytpu:team.max_chips is {entries.max_chips}"
            yield entries.scope.problem(
                place, server.upgrade, what, f"use in_place, or max_chips of {wanted} or more"
            )
