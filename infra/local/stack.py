"""The local stack as one component: a Ray cluster of simulated slices, and the workloads on it."""

import hashlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pulumi

from infra.config import (
    CheckSpec,
    DataSpec,
    Folder,
    Hub,
    InferSpec,
    JobSpec,
    LocalCluster,
    ServeSpec,
    SliceJobSpec,
    SpmdSpec,
    StackConfig,
    TrainSpec,
    Workload,
)
from infra.config.jobs import SliceJobTerms
from infra.config.runs import run_id
from infra.local import ray_node, vllm
from infra.local.cluster import RayHead, SimulatedSlice, WorkspaceResource
from infra.local.jobs import RayJob
from infra.local.provider import COMPONENT
from infra.local.serving import ServeApplications
from infra.local.workspace import Workspace
from infra.ray.entrypoint import modules
from infra.ray.serve_config import BUILDERS, slice_args
from infra.tpu.slice import TpuSlice

HEAD_CPUS = 4
"""Ray's CPU slots of the head: a job's driver, data tasks, Serve's controller and proxy."""

_WORKLOADS = Path(__file__).parents[2] / "workloads"


class LocalStack(pulumi.ComponentResource):
    """`config` on real Ray processes of this machine; each part waits for what it needs."""

    urls: pulumi.Output[dict[str, str]]
    """Base address of each served model, for an OpenAI client."""
    results: dict[str, pulumi.Output[dict[str, Any]]]
    """What each job reported at its end: its plain figures, without lists and parts."""

    def __init__(
        self,
        name: str,
        config: StackConfig,
        cluster: LocalCluster,
        root: Path,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(COMPONENT, name, None, opts)
        self._name = name
        self._config = config
        self._cluster = cluster
        self._root = root
        self._storage = root / cluster.folder(config.stack)
        self._workspace = Workspace(str(root), config.stack, str(self._storage))
        self._head = self._start_head()
        self._slices = {tpu.name: self._start_slices(tpu) for tpu in config.slices}
        self._jobs = self._run_jobs()
        self.results = {name: job.result.apply(_figures) for name, job in self._jobs.items()}
        self.dashboard_url = self._head.dashboard_url
        self.urls = self._serve()
        self.register_outputs({"urls": self.urls, "dashboard_url": self.dashboard_url})

    def _start_head(self) -> RayHead:
        workspace = WorkspaceResource(f"{self._name}-workspace", self._workspace, self._child())
        return RayHead(
            f"{self._name}-head",
            workspace=self._workspace,
            cpus=HEAD_CPUS,
            dashboard_port=self._cluster.dashboard_port,
            opts=self._child(workspace),
        )

    def _start_slices(self, tpu: TpuSlice) -> list[SimulatedSlice]:
        contract = tpu.contract()
        slices: list[SimulatedSlice] = []
        for copy in range(tpu.count):
            name = f"{tpu.name}-{copy}"  # as the webhook names it: group and replica
            hosts = [
                {**ray_node.host_environment(contract, i, name), **self._compiled()}
                for i in range(tpu.hosts)
            ]
            slices.append(
                SimulatedSlice(
                    f"{self._name}-{name}",
                    workspace=self._workspace,
                    head=self._head,
                    slice_name=name,
                    chips_per_host=tpu.chips_per_host,
                    hosts=hosts,
                    opts=self._child(self._head),
                )
            )
        return slices

    def _compiled(self) -> dict[str, str]:
        """Where JAX keeps what it compiled, beside what else the stack keeps.

        Of several hosts the first alone finds it again: on CPU devices the keys of a program differ
        from host to host (JAX 0.10).
        """
        return {"JAX_COMPILATION_CACHE_DIR": str(self._workspace.folder / "compiled")}

    def _run_jobs(self) -> dict[str, RayJob]:
        """Checks first, then data, then training, then the rest: each waits for what it reads."""
        jobs: dict[str, RayJob] = {}
        for kind in (CheckSpec, DataSpec, TrainSpec, InferSpec, SpmdSpec):
            for workload in self._config.workloads:
                if isinstance(workload, kind):
                    jobs[workload.name] = self._job(workload, jobs)
        return jobs

    def _job(self, workload: JobSpec, earlier: dict[str, RayJob]) -> RayJob:
        output = self._output(workload)
        arguments = ["--settings", self._settings(workload), "--output", str(output)]
        # All of the cluster first: what starts beside work on few cores runs into Ray's limits.
        needs: list[pulumi.Resource] = [s for copies in self._slices.values() for s in copies]
        version = code_digest(workload, self._code(workload))
        if isinstance(workload, DataSpec):
            arguments += self._tokenizer(workload)
        else:
            contract = self._config.slice(workload.slice).contract()
            origins, reads = self._input(workload)
            arguments += ["--slice", contract.to_json(), *reads]
            if isinstance(workload, TrainSpec) and workload.min_slices is not None:
                arguments += ["--min-slices", str(workload.min_slices)]
            needs += [job for name, job in earlier.items() if self._goes_before(name, workload)]
            if read := [earlier[origin] for origin in origins if isinstance(origin, str)]:
                version = _versioned(version, *read)
        return RayJob(
            f"{self._name}-{workload.name}",
            job=workload.name,
            dashboard_url=self._head.dashboard_url,
            entrypoint=shlex.join([sys.executable, "-m", *modules(workload), *arguments]),
            version=version,
            result_file=str(output / RESULT_FILES[workload.kind]),
            opts=self._child(self._head, *needs),
        )

    def _settings(self, workload: JobSpec) -> str:
        """As JSON. Its files are those of the project, wherever the job's process is started."""
        settings = workload.settings()
        match workload:
            case DataSpec(sources=names):
                changes = {"sources": tuple(map(self._path, names))}
            case InferSpec(prompts=names):
                changes = {"prompts": tuple(map(self._path, names))}
            case _:
                changes = {}
        return settings.model_copy(update=changes).model_dump_json()

    def _tokenizer(self, workload: DataSpec) -> list[str]:
        folder = workload.tokenizer
        return [] if folder is None else ["--tokenizer", self._path(folder.path)]

    def _code(self, workload: JobSpec) -> list[Path]:
        """Files of the user's own that a job runs."""
        if not isinstance(workload, SpmdSpec) or workload.code is None:
            return []
        return sorted(Path(self._path(workload.code)).rglob("*.py"))

    def _path(self, path: str) -> str:
        return path if "://" in path else str(self._root / path)

    def _input(self, workload: SliceJobSpec) -> tuple[list[str | Folder], list[str]]:
        """Where the job's input is from, and how the job is told."""
        match workload:
            case TrainSpec():
                data, base = workload.data, workload.base
                reads = ["--corpus", self._origin(data, "")]
                if base is None:
                    return [data], reads
                return [data, base], [*reads, "--base", self._origin(base, "export")]
            case InferSpec():
                return [workload.model], ["--model", self._origin(workload.model, "export")]
            case SpmdSpec(code=str() as folder):
                return [], ["--code", self._path(folder)]
            case _:
                return [], []

    def _goes_before(self, name: str, workload: SliceJobSpec) -> bool:
        """Whether a job waits for this one: it reads what that writes, or needs its slice."""
        job = self._config.workload(name)
        shares = not isinstance(job, DataSpec | ServeSpec) and job.slice == workload.slice
        return name in self._input(workload)[0] or shares

    def _serve(self) -> pulumi.Output[dict[str, str]]:
        served = [w for w in self._config.workloads if isinstance(w, ServeSpec)]
        if not served:
            return pulumi.Output.from_input({})
        needs = [slice_ for w in served for slice_ in self._slices[w.slice]]
        trained = [self._jobs[w.model] for w in served if isinstance(w.model, str)]
        keys = {w.name: w.api_key.get_secret_value() for w in served if w.api_key}
        applications = ServeApplications(
            f"{self._name}-serve",
            dashboard_url=self._head.dashboard_url,
            applications=[self._application(w, alone=len(served) == 1) for w in served],
            api_keys={name: pulumi.Output.secret(key) for name, key in keys.items()},
            key_folder=str(self._workspace.folder / "keys"),
            version=_versioned(code_digest(served[0]), *trained),
            port=self._cluster.serve_port,
            opts=self._child(self._head, *needs, *trained),
        )
        return applications.urls

    def _application(self, workload: ServeSpec, *, alone: bool) -> dict[str, Any]:
        return {
            "name": workload.name,
            "route_prefix": "/" if alone else f"/{workload.name}",
            "import_path": BUILDERS[workload.engine],
            "args": {
                **slice_args(self._config, workload),
                "settings": workload.settings().model_dump(mode="json"),
                "model": self._origin(workload.model, "export"),
                "model_name": workload.name,
                "replicas": workload.replica(self._config.slice(workload.slice)).count,
                **(vllm.ARGS if workload.engine == "vllm" else {}),
            },
            "runtime_env": vllm.runtime_env() if workload.engine == "vllm" else {},
        }

    def _origin(self, origin: str | Folder | Hub, part: str) -> str:
        """Where a workload's output, or a folder of the user's, lies."""
        match origin:
            case Folder(path=path):
                return self._path(path)
            case Hub(hub=model):  # refused by the rules of a local stack
                raise ValueError(f"{model} is a model of the hub")
            case name:
                return str(self._output(self._config.workload(name)) / part)

    def _output(self, workload: Workload) -> Path:
        """A training run has a folder of its own, so one with other settings starts anew."""
        folder = self._storage / workload.name
        if not isinstance(workload, TrainSpec):
            return folder
        return folder / run_id(self._config, workload)

    def _child(self, *needs: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(needs))


RESULT_FILES = {
    "data": "corpus.json",
    **dict.fromkeys(("train", "infer", "spmd", "check"), "result.json"),
}
"""The last file that a job writes: it is there when the job's output is whole."""


_ALSO = {"infer": ("data", "serve", "train")}
"""Kinds whose code another kind runs too."""


def code_digest(workload: Workload, more: Sequence[Path] = ()) -> str:
    """Of the code that a workload of this kind runs: that of other kinds may change freely.

    `more`: files beside the project's own.
    """
    kinds = {kind.model_fields["kind"].annotation for kind in get_args(Workload)}
    runs = {workload.kind, *_ALSO.get(workload.kind, ())}
    if isinstance(workload, SliceJobTerms) and workload.slice_check:
        runs.add("check")
    others = {get_args(kind)[0] for kind in kinds} - runs
    digest = hashlib.sha256()
    for path in sorted(_WORKLOADS.rglob("*.py")):
        parts = path.relative_to(_WORKLOADS).parts
        if parts[0] not in others:
            digest.update(f"{parts}\0".encode() + path.read_bytes() + b"\0")
    for path in more:
        digest.update(f"{path}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if not isinstance(value, dict | list)}


def _versioned(code: str, *earlier: RayJob) -> pulumi.Output[str]:
    """Changes when the code does, or what an earlier job made."""
    results = pulumi.Output.all(*(job.result for job in earlier))
    return results.apply(lambda made: _digest(code, made))


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
