"""Model engines of a RayService: what Serve's config says of them, and the slice they run on."""

from collections.abc import Iterable, Iterator
from typing import Any

from infra.errors import quote
from infra.tpu import topology as topologies
from policies.documents import embedded
from policies.plain import mapping, sequence
from policies.pods import devices_per_chip, shape, tpu_pods
from policies.rule import MANDATORY, Context, rule
from policies.view import Fault, Item, Node
from workloads.contract import told_devices


def applications(at: Node) -> list[dict[str, Any]]:
    """The arguments of each application of a Serve config."""
    return [mapping(app.get("args")) for app in _applications(at)]


def _applications(at: Node) -> list[dict[str, Any]]:
    config = mapping(embedded(at.text or ""))
    return [mapping(app) for app in sequence(config.get("applications"))]


def engines(item: Item) -> Iterable[tuple[Item, Node, dict[str, Any], float]]:
    """Model engines of a service: their arguments, and the chips their own deployment takes."""
    if item.kind != "RayService" or not tpu_pods(item):
        return
    at = item.root["spec"]["serveConfigV2"]
    for app in _applications(at):
        taken = _taken(app)
        for arguments in _engine_arguments(app):
            yield item, at, arguments, taken


def _engine_arguments(value: Any) -> Iterator[dict[str, Any]]:
    found = mapping(value)
    if "tensor_parallel_size" in found:
        yield found
        return
    for inner in (*found.values(), *sequence(value)):
        yield from _engine_arguments(inner)


def _taken(app: dict[str, Any]) -> float:
    """Chips that the deployments themselves ask Ray for."""
    options = [
        mapping(mapping(one).get("ray_actor_options")) for one in sequence(app.get("deployments"))
    ]
    chips = [mapping(one.get("resources")).get("TPU") for one in options]
    return sum(count for count in chips if isinstance(count, int | float))


@rule(
    "slices-engine",
    "A model engine spans its slice exactly, and asks for its chips once.",
    why="On TPU an engine uses a whole slice: with fewer shards it hangs, with more it waits, and "
    "chips that its own deployment holds are missing for its workers.",
    levels=MANDATORY,
    over=engines,
    pains=("P20", "P25"),
)
def _engine(subject: tuple[Item, Node, dict[str, Any], float], _: Context) -> Iterator[Fault]:
    item, at, arguments, taken = subject
    names = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    sizes = [arguments.get(name, 1) for name in names]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        what = f"{quote(sizes)} are no whole numbers for an engine's parallel sizes"
        yield at.fault(what, f"write numbers of 1 or more as {', '.join(names)}")
        return
    asked = sizes[0] * sizes[1] * sizes[2]
    (pod, *_others) = tpu_pods(item)
    found = shape(pod)
    if found is None:
        return
    chips, each = topologies.chips(found[1]), devices_per_chip(found[0])
    total = chips * each
    if (asked != total) if chips > found[2] else (asked > total):
        there = told_devices(total, each)
        what = f"an engine of {' x '.join(map(str, sizes))} = {asked} on a slice of {there}"
        yield at.fault(what, f"make tensor x pipeline x data parallel size {total}")
    form = arguments.get("topology")
    if isinstance(form, str) and form.strip().lower() != found[1]:
        what = f"an engine's topology {quote(form)} is not that of its pods, {found[1]}"
        yield at.fault(what, f"write {found[1]}")
    if taken and asked / each + taken > chips:
        engine = f"its engine {asked / each:g}, of {chips} there are"
        what = f"the deployment takes {taken:g} chips and {engine}"
        yield at.fault(what, "write 0 TPU in ray_actor_options; the engine reserves its own")
