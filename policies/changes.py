"""Changes: what a preview must not take away, and upgrades that need what nobody has."""

from collections.abc import Iterable, Iterator

from infra.tpu.catalog import CHIP_RESOURCE
from policies.pods import most_chips
from policies.pools import CLUSTER, hosts, tpu_pools
from policies.rule import MANDATORY, Context, Levels, kinds, rule
from policies.view import Fault, Item

BUCKET = "gcp.storage.Bucket"


def kept(item: Item) -> Iterable[Item]:
    """What holds capacity or data that cannot be had again for the price of a command."""
    return (item,) if item.kind in (CLUSTER, BUCKET) or tpu_pools(item) else ()


@rule(
    "changes-keep",
    "A change replaces or deletes no TPU pool, bucket or cluster, unless an allowance names it.",
    why="Capacity that is given back may be gone, and so is what was in a bucket or ran on a "
    "cluster.",
    levels=MANDATORY,
    over=kept,
    pains=("P10",),
    limits=("allow.replace",),
    of="steps",
)
def _keep(item: Item, context: Context) -> Iterator[Fault]:
    if item.name in context.settings.allow.replace:
        return
    fix = f"undo the change, or name {item.name} in allow.replace of the settings"
    yield Fault(item, (), f"it would {item.change} {item.name}, a {item.kind}", fix)


@rule(
    "changes-second-slice",
    "An upgrade of a service that needs a second set of slices has the capacity for it.",
    why="A new cluster beside the old one asks for as many chips again, and waits for ever where "
    "there are none. NewCluster is what is taken if nothing is said.",
    levels=MANDATORY,
    over=kinds("RayService"),
    limits=("allow.second_slice",),
)
def _second_slice(item: Item, context: Context) -> Iterator[Fault]:
    chips = most_chips(item)
    at = item.root["spec"]["upgradeStrategy"]["type"]
    if not chips or at.text == "None" or item.name in context.settings.allow.second_slice:
        return
    if _quota(item, context) >= chips + _others(item, context):
        return
    what = f"an upgrade by {at.text or 'NewCluster'} takes {chips} chips more"
    fix = f"write None, declare a quota of them, or name {item.name} in allow.second_slice"
    yield at.fault(what, fix)


def _others(item: Item, context: Context) -> int:
    rays = context.view.of("RayCluster", "RayJob", "RayService")
    return sum(most_chips(one) for one in rays if one.namespace == item.namespace)


def _quota(item: Item, context: Context) -> int:
    """Chips that the namespace may have; 0 if no quota says so."""
    quotas = (
        one.root["spec"]["hard"][f"requests.{CHIP_RESOURCE}"].number
        for one in context.view.of("ResourceQuota")
        if one.namespace == item.namespace
    )
    return min((chips for chips in quotas if chips is not None), default=0)


@rule(
    "changes-pool-upgrade",
    "Upgrading a pool of several hosts takes no second slice.",
    why="Spare hosts of a slice come only as another whole slice, and compact placement excludes "
    "blue-green.",
    levels=MANDATORY,
    over=tpu_pools,
)
def _pool_upgrade(item: Item, _: Context) -> Iterator[Fault]:
    if hosts(item) is None:
        return
    settings = item.root["upgradeSettings"]
    if settings["strategy"].text == "BLUE_GREEN":
        what = "BLUE_GREEN takes a second slice"
        yield settings["strategy"].fault(what, "write SURGE with maxSurge 0")
    if settings["maxSurge"].number:
        what = f"{settings['maxSurge'].number} spare hosts take a second slice"
        yield settings["maxSurge"].fault(what, "write 0, and maxUnavailable 1")


@rule(
    "changes-protection-said",
    "Whether a cluster may be deleted is said.",
    why="Left out, Google's provider protects it, and a teardown fails when it is wanted.",
    levels=MANDATORY,
    over=kinds(CLUSTER),
    pains=("P34",),
)
def _protection_said(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["deletionProtection"]
    if at.flag is None:
        yield at.fault("is left out", "write true for prod, false for others")


@rule(
    "changes-protection",
    "A cluster of prod refuses to be deleted.",
    why="A command in the wrong stack ends all that runs.",
    levels=Levels("off", "off", "mandatory"),
    over=kinds(CLUSTER),
    pains=("P34",),
)
def _protection(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["deletionProtection"]
    if at.flag is False:
        yield at.fault("false, so one command deletes it", "write deletion_protection: true")


@rule(
    "changes-force-destroy",
    "A bucket is not deleted with what is in it.",
    why="Checkpoints and corpora cannot be had again.",
    levels=Levels("off", "advisory", "mandatory"),
    over=kinds(BUCKET),
    pains=("P34",),
)
def _force_destroy(item: Item, context: Context) -> Iterator[Fault]:
    at = item.root["forceDestroy"]
    is_cache = item.name.endswith("-cache") and context.environment != "prod"
    if at.flag and not is_cache:
        yield at.fault("true, so its content goes with it", "write false")
