"""What must be right of the cluster itself: its version, its network, its name."""

from collections.abc import Iterator
from ipaddress import IPv4Network

from infra.config.cluster import AutopilotCluster, ExistingCluster, GkeCluster
from infra.config.entries import Entries
from infra.errors import Problem, quote
from infra.gke import addresses, version
from infra.names import is_name

_VERSION = "raytpu:cluster.version"
_WHOLE_INTERNET_BITS = 2
"""Nobody has a quarter of all addresses, and two halves are the whole."""


def faults(entries: Entries) -> Iterator[Problem]:
    yield from _old_version(entries)
    if not is_name(entries.stack):
        yield Problem(
            f"stack {entries.stack}",
            "its name cannot be a part of a cluster's",
            "use a-z, 0-9 and '-', starting with a letter and ending with a letter or digit",
        )
    cluster = entries.cluster
    if isinstance(cluster, GkeCluster | AutopilotCluster):
        slices = entries.slices.values()
        yield from addresses.faults(
            cluster.network, slices, cluster.cpu_nodes, "raytpu:cluster.network"
        )


def remarks(entries: Entries) -> Iterator[Problem]:
    needed = _requirements(entries)
    cluster = entries.cluster
    if needed and not _version(entries):
        most = max(needed, key=lambda one: one.version)
        what = f"is not given, and {most.feature} take GKE {most.version} or later"
        yield Problem(_VERSION, what, "not checked: write a version to have it checked")
    yield from _open_to_all(cluster)
    by_class = any(tpu.provision == "compute_class" for tpu in entries.slices.values())
    if isinstance(cluster, ExistingCluster) and by_class:
        least = version.CLASS_WITHOUT_AUTO_PROVISIONING
        if not (cluster.version and version.reaches(cluster.version, least.version)):
            yield Problem(
                "raytpu:cluster.mode",
                f"'existing' needs node auto-provisioning before {least.version}, or no compute "
                "class makes nodes",
                "not checked: see to it",
            )


def _open_to_all(cluster: object) -> Iterator[Problem]:
    if not isinstance(cluster, GkeCluster | AutopilotCluster):
        return
    for index, network in enumerate(cluster.authorized_networks):
        if IPv4Network(network.cidr).prefixlen <= _WHOLE_INTERNET_BITS:
            yield Problem(
                f"raytpu:cluster.authorized_networks[{index}].cidr",
                f"{quote(network.cidr)} opens the control plane's address to most of the internet",
                "leave it out: by its name the cluster is reached from everywhere, by those whom "
                "Google lets in",
            )


def _old_version(entries: Entries) -> Iterator[Problem]:
    given = _version(entries)
    for feature, least, _ in _requirements(entries):
        if given and not version.reaches(given, least):
            what = f"{quote(given)} is too old: {feature} take {least} or later"
            yield Problem(_VERSION, what, f"use {least}")


def _version(entries: Entries) -> str | None:
    match entries.cluster:
        case GkeCluster() | AutopilotCluster() | ExistingCluster():
            return entries.cluster.version
        case _:
            return None


def _requirements(entries: Entries) -> list[version.Requirement]:
    autopilot = isinstance(entries.cluster, AutopilotCluster)
    needed = version.requirements(entries.slices.values(), autopilot=autopilot)
    if isinstance(entries.cluster, ExistingCluster):
        needed.remove(version.RAY_OPERATOR)  # it may be of another origin
    return [one for one in needed if entries.zones or one != version.CLASS_ZONES]
