"""How `raytpu check` shows what it found: tables in a terminal, columns in a pipe, or JSON."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.cli.check import Report
from infra.config import (
    CheckSpec,
    ClusterSpec,
    DataSpec,
    ExistingCluster,
    Folder,
    GkeCluster,
    Hub,
    InferSpec,
    LocalCluster,
    ServeSpec,
    SpmdSpec,
    StackConfig,
    TrainSpec,
    Workload,
)
from infra.tpu.capacity import FlexStart, Reservation, Rung, written
from infra.tpu.slice import TpuSlice
from workloads.contract import told_devices

_PIPE_WIDTH = 1000  # lines in a pipe are never folded


def print_text(reports: Sequence[Report]) -> None:
    """Results to stdout; what could not be read to stderr."""
    out, piped = stdout()
    for report in reports:
        if report.unreadable:
            print_line(Console(stderr=True, highlight=False), report.unreadable, "red")
        for problem in report.problems:
            print_line(out, f"{report.file}: {problem}", "red")
        if report.config:
            _print_config(out, report.file, report.config, piped=piped)


def print_json(reports: Sequence[Report]) -> None:
    document = {"stacks": [_report_as_json(report) for report in reports]}
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def stdout() -> tuple[Console, bool]:
    """A console, and whether it writes to a pipe."""
    piped = not sys.stdout.isatty()
    return Console(width=_PIPE_WIDTH if piped else None, highlight=False), piped


def print_line(console: Console, line: str, style: str) -> None:
    """One line whatever its length; brackets in it are no markup."""
    console.print(Text(line, style=style), soft_wrap=True)


def print_table(out: Console, table: Table) -> None:
    """Rich fills lines up to the width of the table; a pipe has no use for that."""
    with out.capture() as rendered:
        out.print(table)
    lines = [line.rstrip() for line in rendered.get().splitlines()]
    out.file.write("\n".join(lines) + "\n")


def _print_config(out: Console, file: str, config: StackConfig, *, piped: bool) -> None:
    _print_judgement(out, file, config)
    frame = None if piped else box.SIMPLE
    if config.slices:
        slices = Table(box=frame, padding=(0, 2, 0, 0))
        facts = [_slice_facts(tpu) | _capacity_facts(tpu, config) for tpu in config.slices]
        slices.add_column("slice", style="dim")
        for tpu in config.slices:
            slices.add_column(tpu.name)
        for label in facts[0]:
            if any(fact[label] for fact in facts):
                slices.add_row(label, *(fact[label] for fact in facts))
        print_table(out, slices)
    if config.workloads:
        workloads = Table(box=frame, padding=(0, 2, 0, 0))
        for heading in ("workload", "kind", "slice", "mesh", "what it does"):
            workloads.add_column(heading)
        for workload in config.workloads:
            workloads.add_row(*_workload_cells(workload, config))
        print_table(out, workloads)


def _print_judgement(out: Console, file: str, config: StackConfig) -> None:
    print_line(out, f"{file}: no faults", "green")
    for remark in config.remarks:
        print_line(out, f"{file}: {remark} (a remark)", "yellow")
    for name, sentence in config.fit.items():
        print_line(out, f"{file}: {name}: {sentence}", "dim")
    if not isinstance(config.cluster, LocalCluster):
        print_line(out, f"{file}: {_unasked(config)} (not checked)", "dim")


def _slice_facts(tpu: TpuSlice) -> dict[str, str]:
    times = f"{tpu.count} x " if tpu.count > 1 else ""
    accelerator, topology, chips = tpu.node_selector.values()
    each = tpu.generation.devices_per_chip
    return {
        "machine type": tpu.machine.name,
        "topology": f"{times}{tpu.topology}",
        "hosts": f"{times}{tpu.hosts} of {tpu.chips_per_host} chips",
        "chips": f"{times}{tpu.chips}",
        "devices": f"{times}{told_devices(tpu.devices, each)}" if each > 1 else "",
        "TensorCores": f"{times}{tpu.chips * tpu.generation.cores_per_chip}",
        "HBM": f"{times}{tpu.hbm_gib} GiB",
        "node labels": f"{accelerator}, {topology}, {chips}",
        "Ray": f"{tpu.accelerator_type}, {tpu.pod_type}",
        "Ray workers": str(tpu.workers),
    }


def _capacity_facts(tpu: TpuSlice, config: StackConfig) -> dict[str, str]:
    """How the hosts come to be. The local stack makes them of processes."""
    nodes = f"{tpu.pools[0]} node{'s' if tpu.pools[0] > 1 else ''}"
    if isinstance(config.cluster, LocalCluster):
        return {"node pools": f"{len(tpu.pools)} of {nodes}"}
    if tpu.provision == "compute_class":
        makers = f"by a compute class, of {nodes}"
    elif isinstance(config.cluster, ExistingCluster):
        makers = f"{len(tpu.pools)} of {nodes}, made by others"
    else:
        makers = f"{len(tpu.pools)} of {nodes}, {'kept' if tpu.keep_nodes else 'empty when idle'}"
    zones = [rung.terms.zone for shape in tpu.shapes for rung in shape.capacity]
    asked = dict.fromkeys(zone for zone in zones if zone)
    others = config.cluster.zones if None in zones else ()
    return {
        "capacity": _ladder(tpu),
        "instead": "; ".join(
            f"{shape.topology} on {shape.machine.name}: {_ladder(shape)}" for shape in tpu.fallback
        ),
        "zones": ", ".join(dict.fromkeys([*asked, *others])) or "as GKE chooses",
        "node pools": makers,
    }


def _ladder(shape: TpuSlice) -> str:
    return ", then ".join(_rung(rung) for rung in shape.capacity)


def _rung(rung: Rung) -> str:
    match rung.terms:
        case FlexStart(max_run_duration=run):
            return f"{rung.kind} for {written(run)}"
        case Reservation(path=path):
            return f"{rung.kind} {path}"
        case _:
            return rung.kind


def _unasked(config: StackConfig) -> str:
    """What only Google, or the cluster, knows."""
    parts = ["quota", "images", "whether there is capacity"]
    if isinstance(config.cluster, GkeCluster):
        parts.append(f"whether {config.cluster.cpu_pool.machine_type} is offered in the zones")
    if isinstance(config.cluster, ExistingCluster):
        parts.append("the cluster's operators, node pools and bucket")
    return ", ".join(parts)


def _workload_cells(workload: Workload, config: StackConfig) -> tuple[str, str, str, str, str]:
    if isinstance(workload, DataSpec):
        given, trained = workload.tokenizer, f"vocabulary of {workload.vocab_size}"
        packed_with = f"tokenizer of {given.path}" if given else trained
        what = f"sequences of {workload.sequence_length}, {packed_with}"
        return workload.name, workload.kind, "", "", what
    if isinstance(workload, SpmdSpec):
        what = f"runs {workload.program} on every host"
        return workload.name, workload.kind, workload.slice, "", what
    if isinstance(workload, CheckSpec):
        what = "looks at each host, and measures what connects them"
        return workload.name, workload.kind, workload.slice, "", what
    if isinstance(workload, ClusterSpec):
        what = f"to work on by hand; a slice idle for {written(workload.idle_timeout)} is freed"
        return workload.name, workload.kind, workload.slice, "", what
    if isinstance(workload, TrainSpec):
        what = f"{workload.steps} steps of {workload.global_batch} sequences"
        what += ", of adapters" if workload.lora else ""
        what += f", starting from {_source(workload.base)}" if workload.base else ""
        source, mesh = _source(workload.data), workload.mesh
    elif isinstance(workload, InferSpec):
        tpu = config.slice(workload.slice)
        what = f"{workload.task}s {workload.batch_size} prompts at once, up to "
        what += f"{workload.max_sequence_length} tokens"
        source, mesh = _source(workload.model), workload.mesh_on(tpu.workers, tpu.devices_per_host)
    else:
        drawn = "pictures" if workload.engine == "diffusion" else "requests"
        what = f"{workload.max_batch} {drawn} at once by engine {workload.engine}"
        what += ", with an API key" if workload.api_key else ", without an API key"
        replica = workload.replica(config.slice(workload.slice))
        what += f", a replica on each {part}" if (part := workload.replica_topology) else ""
        source, mesh = _source(workload.model), workload.mesh_on(replica.devices)
    return workload.name, workload.kind, workload.slice, str(mesh), f"{what}, from {source}"


def _source(origin: str | Folder | Hub) -> str:
    match origin:
        case Folder(path=path):
            return path
        case Hub(hub=name):
            return f"{name} of the hub"
        case name:
            return name


def _report_as_json(report: Report) -> dict[str, Any]:
    config = report.config
    return {
        "stack": report.file,
        "exit_code": report.exit_code,
        "unreadable": report.unreadable,
        "problems": [vars(problem) for problem in report.problems],
        "remarks": [vars(remark) for remark in config.remarks] if config else [],
        "fit": dict(config.fit) if config else {},
        "cluster": config.cluster.model_dump(mode="json") if config else None,
        "slices": [_slice_as_json(tpu) for tpu in config.slices] if config else [],
        "workloads": [_workload_as_json(one) for one in config.workloads] if config else [],
    }


def _slice_as_json(tpu: TpuSlice) -> dict[str, Any]:
    return {
        **vars(tpu.contract()),
        "chips": tpu.chips,
        "devices": tpu.devices,
        "hbm_gib": tpu.hbm_gib,
        "pools": tpu.pools,
        "node_selector": tpu.node_selector,
        "chip_request": tpu.chip_request,
        "ray_labels": tpu.ray_labels,
        "head_resource": tpu.head_resource,
        "workers": tpu.workers,
        "provision": tpu.provision,
        "keep_nodes": tpu.keep_nodes,
        "capacity": [_rung_as_json(rung) for rung in tpu.capacity],
        "fallback": [_slice_as_json(shape) for shape in tpu.fallback],
    }


def _rung_as_json(rung: Rung) -> dict[str, Any]:
    return {"kind": rung.kind, **rung.terms.model_dump(mode="json")}


def _workload_as_json(workload: Workload) -> dict[str, Any]:
    """Of a secret only whether it is there."""
    values = workload.model_dump(mode="json")
    if isinstance(workload, ServeSpec):
        values["api_key"] = workload.api_key is not None
        if workload.redis:
            values["redis"]["password"] = workload.redis.password is not None
    return values
