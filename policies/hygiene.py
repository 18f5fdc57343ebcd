"""Cost and order: who pays, how much there may be, of what and where, from which images."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from infra.errors import quote
from infra.tpu.catalog import ACCELERATOR_LABEL, CHIP_RESOURCE, GENERATIONS
from policies.pods import Pod, most_chips, pods, tpu_pods, tpu_rays
from policies.pools import CLUSTER, POOL, machine, tpu_pools
from policies.rule import ADVISORY, LENIENT_IN_DEV, MANDATORY, ONLY_PROD, Context, kinds, rule
from policies.view import Fault, Item, Node

LABELS = ("team", "environment", "cost_center")
_LABELLED = {
    CLUSTER: ("resourceLabels",),
    POOL: ("nodeConfig", "resourceLabels"),
    "gcp.storage.Bucket": ("labels",),
}
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


@rule(
    "hygiene-labels",
    "Clusters, pools and buckets say whose they are and who pays.",
    why="Google's bill is split by labels; what has none is nobody's.",
    levels=LENIENT_IN_DEV,
    over=kinds(*_LABELLED),
)
def _labels(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root
    for key in _LABELLED[item.kind]:
        at = at[key]
    if missing := [label for label in LABELS if not at[label].text]:
        yield at.fault(f"lacks {' and '.join(missing)}", f"add {' and '.join(missing)} here")


@rule(
    "hygiene-quota",
    "A namespace with TPU workloads may have only so many chips.",
    why="A mistyped replica count asks for all that the project may have.",
    levels=ADVISORY,
    over=tpu_rays,
)
def _quota(item: Item, context: Context) -> Iterator[Fault]:
    quotas = (
        one.root["spec"]["hard"][f"requests.{CHIP_RESOURCE}"]
        for one in context.view.of("ResourceQuota")
        if one.namespace == item.namespace
    )
    if not any(quotas):
        fix = f"add a ResourceQuota with requests.{CHIP_RESOURCE}"
        what = f"nothing here bounds the chips of namespace {item.namespace}"
        yield item.root["metadata"]["namespace"].fault(what, fix)


@rule(
    "hygiene-chips",
    "All workloads together ask for no more chips than their budget.",
    why="Chips are nearly all of the bill.",
    levels=MANDATORY,
    over=tpu_rays,
    limits=("max_chips",),
)
def _chips(item: Item, context: Context) -> Iterator[Fault]:
    most = context.settings.limits.max_chips
    own = most_chips(item)
    if most is None or own == 0:
        return
    rays = context.view.of("RayCluster", "RayJob", "RayService")
    before = 0
    for one in rays:
        if one is item:
            break
        before += most_chips(one)
    if before <= most < before + own:
        what = f"{before + own} chips with this one, over the budget of {most}"
        fix = "write fewer replicas and maxReplicas, or raise limits.max_chips"
        yield item.root["spec"].fault(what, fix)


@rule(
    "hygiene-generations",
    "TPUs are of a generation that the team may use.",
    why="Prices of a chip differ tenfold between generations.",
    levels=MANDATORY,
    over=lambda item: [*tpu_pools(item), *tpu_pods(item)],
    limits=("generations",),
)
def _generations(subject: Item | Pod, context: Context) -> Iterator[Fault]:
    allowed = context.settings.limits.generations
    if allowed is None:
        return
    if isinstance(subject, Item):
        at = subject.root["nodeConfig"]["machineType"]
        found = machine(subject)
        name = found.generation if found else None
    else:
        at = subject.selector[ACCELERATOR_LABEL]
        named = [g.name for g in GENERATIONS.values() if g.gke_accelerator == at.text]
        name = named[0] if named else None
    if name is not None and name not in allowed:
        yield at.fault(f"{name} is not for this team", f"use {' or '.join(allowed) or 'no TPU'}")


@rule(
    "hygiene-zones",
    "TPUs are in a zone that the team may use.",
    why="Data that leaves its region is paid for, and may have to stay there.",
    levels=MANDATORY,
    over=lambda item: tpu_pools(item) or ((item,) if item.kind == "ComputeClass" else ()),
    limits=("zones",),
)
def _zones(item: Item, context: Context) -> Iterator[Fault]:
    allowed = context.settings.limits.zones
    if allowed is None:
        return
    for zone in _named_zones(item):
        if zone.text not in allowed:
            fix = f"use {' or '.join(allowed) or 'none'}"
            yield zone.fault(f"{quote(zone.text)} is not for this team", fix)


def _named_zones(item: Item) -> Iterable[Node]:
    if item.kind != "ComputeClass":
        return [*item.root["nodeLocations"]]
    priorities = [*item.root["spec"]["priorities"], item.root["spec"]["priorityDefaults"]]
    entries = [entry for p in priorities for entry in p["reservations"]["specific"]]
    return [
        *(zone for priority in priorities for zone in priority["location"]["zones"]),
        *(zone for entry in entries for zone in entry["zones"]),
    ]


def images(item: Item) -> Iterable[Node]:
    return [container["image"] for pod in pods(item) for container in pod.containers()]


@rule(
    "images-registry",
    "Images come from registries that are allowed.",
    why="An image of anybody runs with the workload's rights.",
    levels=LENIENT_IN_DEV,
    over=images,
    limits=("registries",),
)
def _registry(image: Node, context: Context) -> Iterator[Fault]:
    allowed, name = context.settings.limits.registries, image.text
    if allowed is None or name is None:
        return
    if not any(fnmatchcase(name, pattern) for pattern in allowed):
        yield image.fault(f"{quote(name)} is of no allowed registry", f"use {' or '.join(allowed)}")


@rule(
    "images-pinned",
    "Images of prod are pinned by digest.",
    why="A tag can be moved to another image while a slice is being replaced.",
    levels=ONLY_PROD,
    over=images,
)
def _pinned(image: Node, _: Context) -> Iterator[Fault]:
    name = image.text
    if name is not None and not _DIGEST.search(name):
        yield image.fault(f"{quote(name)} can change", "write IMAGE@sha256:DIGEST")


@rule(
    "images-tagged",
    "Images have a tag of their own, never latest.",
    why="Hosts of one slice that started at different times would run different programs.",
    levels=LENIENT_IN_DEV,
    over=images,
)
def _tagged(image: Node, _: Context) -> Iterator[Fault]:
    name = image.text
    if name is None or "@" in name:
        return
    tag = name.rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        yield image.fault(f"{quote(name)} is whatever is newest", "write a version as its tag")
