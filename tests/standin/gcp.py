"""A stand-in for Google's provider: one empty project, its rules, and what it fills in.

Each resource needs what it names to be there, as on the real API, so a missing dependency of the
program is seen. All nodes that a pool may ever have are counted against the address ranges.
"""

import ipaddress
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from tests.standin import node_pool, rules
from tests.standin.api import Api, Args, Made, RefusedError
from tests.standin.wire import Path, at, spelled

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
SERVICE = "gcp:projects/service:Service"
ACCOUNT = "gcp:serviceaccount/account:Account"
BUCKET = "gcp:storage/bucket:Bucket"
SECRET = "gcp:secretmanager/secret:Secret"  # noqa: S105 - a type's name
REPOSITORY = "gcp:artifactregistry/repository:Repository"
RESOURCE_POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
ROUTER = "gcp:compute/router:Router"

POOL_S = 0.5
"""A pool takes longer than all that does not wait for it, so that is seen."""
DEFAULT_VERSION = "1.35.3-gke.1737000"

NEEDS = {
    "network": NETWORK,
    "subnetwork": SUBNETWORK,
    "router": ROUTER,
    "cluster": CLUSTER,
    "bucket": BUCKET,
    "secret": SECRET,
    "secretId": SECRET,
    "repository": REPOSITORY,
    "placementPolicy.policyName": RESOURCE_POLICY,
    "nodeConfig.serviceAccount": ACCOUNT,
}
"""Arguments that name another resource."""
OWN_NAMES = ("name", "accountId", "secretId", "repositoryId", "service")
APIS = {"artifactregistry", "compute", "container", "secretmanager"}
REPLACES = {
    "accountId",
    "bucket",
    "cluster",
    "datapathProvider",
    "enableAutopilot",
    "initialNodeCount",
    "ipAllocationPolicy",
    "ipCidrRange",
    "location",
    "member",
    "name",
    "network",
    "project",
    "region",
    "repository",
    "repositoryId",
    "role",
    "secret",
    "secretData",
    "secretId",
    "service",
    "subnetwork",
    "workloadPolicy",
}
"""Arguments, of all but node pools, of which a change makes another resource."""


class GoogleCloud(Api):
    version = "10.2.0"

    def __init__(self) -> None:
        super().__init__()
        self.others: set[str] = set()
        """Names of resources that are there and that no stack made."""

    def identify(self, made: Made) -> str:
        type_, args = made.type, made.args
        if type_.endswith(("IAMMember", "IamMember")):
            target = next((args[k] for k in ("bucket", "secretId", "repository") if k in args), "")
            return f"{args.get('project', '')}/{target}/{args['role']}/{args['member']}"
        place = args.get("location") or args.get("region") or "global"
        owner = _last(args.get("cluster", args.get("router", args.get("secret", ""))))
        version = f"{zlib.crc32(str(args.get('secretData')).encode()):x}"  # of a secret
        name = next((args[key] for key in OWN_NAMES if key in args), version)
        kind = type_.partition("/")[0].rpartition(":")[2] + "/" + type_.rpartition(":")[2]
        return "/".join(filter(None, (args.get("project", "-"), place, kind, owner, name)))

    def replaces(self, type_: str, path: Path, /) -> bool:
        if type_ != NODE_POOL:
            return path[0] in REPLACES
        text = spelled(path)
        return not any(
            text == one or text.startswith((f"{one}.", f"{one}[")) for one in node_pool.IN_PLACE
        )

    def drift(self, type_: str, /) -> Iterable[str]:
        return node_pool.DRIFT if type_ == NODE_POOL else ()

    def faults(self, made: Made) -> Iterator[str]:
        args = made.args
        yield from rules.label_faults({**args.get("labels", {}), **args.get("resourceLabels", {})})
        if made.type == NODE_POOL:
            yield from node_pool.faults(args)
        elif made.type == CLUSTER:
            yield from rules.cluster_faults(args)
        elif made.type == SUBNETWORK:
            yield from rules.range_faults(args)
        elif made.type == BUCKET:
            yield from rules.bucket_faults(args)

    def create(self, made: Made) -> None:
        self._require_api(made)
        self._require_named(made)
        if made.type == NODE_POOL:
            self._require_addresses(made.args)
            time.sleep(POOL_S)
        made.filled = {**_outputs(self.identify(made), made), **_fills(made)}

    def update(self, made: Made, args: Args) -> None:
        if made.type == NODE_POOL and node_pool.is_tpu(args):
            if args.get("nodeCount") != made.args.get("nodeCount") and node_pool.hosts(args) > 1:
                pool = f"Multi-host TPU pool {args['name']}"
                raise RefusedError(f"501: {pool}: manual resize is not supported")
            for path in ("nodeConfig.machineType", "placementPolicy.tpuTopology"):
                if at(args, path) != at(made.args, path):
                    raise RefusedError(f"{path} of TPU pool {args['name']} cannot be changed")
        super().update(made, args)

    def delete(self, made: Made) -> None:
        if made.type == CLUSTER and made.args.get("deletionProtection", True):
            raise RefusedError(
                "Cannot destroy cluster because deletion_protection is set to true. "
                "Set it to false to proceed with cluster deletion."
            )
        users = [
            other
            for other, user in self.made.items()
            for path, type_ in NEEDS.items()
            if type_ == made.type in (NETWORK, SUBNETWORK)
            and _last(at(user.args, path) or "") == made.args["name"]
        ]
        if users:
            raise RefusedError(
                f"The resource {made.args['name']} is already being used by {users[0]}"
            )

    def invoke(self, token: str, args: Args, /) -> Args:
        if token != "gcp:organizations/getProject:getProject":  # noqa: S105 - a function's name
            return super().invoke(token, args)
        project = args["projectId"]
        return {"projectId": project, "id": f"projects/{project}", "number": number(project)}

    def of_type(self, type_: str) -> list[Made]:
        return [made for made in self.made.values() if made.type == type_]

    def cluster_at(self, address: str) -> Made | None:
        """The cluster that answers there."""
        places = ("endpoint", "controlPlaneEndpointsConfig.dnsEndpointConfig.endpoint")
        clusters = self.of_type(CLUSTER)
        return next((c for c in clusters if address in [at(c.state(), p) for p in places]), None)

    def _require_api(self, made: Made) -> None:
        api = made.type.partition(":")[2].partition("/")[0]
        enabled = {service.args["service"] for service in self.of_type(SERVICE)}
        if api in APIS and f"{api}.googleapis.com" not in enabled:
            raise RefusedError(
                f"403: {api}.googleapis.com has not been used in project before or it is disabled"
            )

    def _require_named(self, made: Made) -> None:
        for path, type_ in NEEDS.items():
            name = at(made.args, path)
            if name is None or type_ == made.type:
                continue
            if _last(name) not in self._names(type_) | self.others:
                raise RefusedError(f"404: {type_.rpartition(':')[2]} {name} was not found")
        pool = re.match(
            r"principal(?:Set)?://.*/workloadIdentityPools/([^/]+)/", str(made.args.get("member"))
        )
        if pool and pool[1] not in {_identity_pool(c.args) for c in self.of_type(CLUSTER)}:
            raise RefusedError(f"400: Identity Pool does not exist ({pool[1]})")

    def _names(self, type_: str) -> set[str]:
        return {
            name
            for made in self.of_type(type_)
            for name in (*(made.args.get(key) for key in OWN_NAMES), made.filled.get("email"))
            if name
        }

    def _require_addresses(self, pool: Args) -> None:
        cluster = self._named(CLUSTER, pool["cluster"])
        subnetwork = self._named(SUBNETWORK, cluster.args["subnetwork"]).args
        wanted = at(cluster.args, "ipAllocationPolicy.clusterSecondaryRangeName")
        pods = next((r for r in subnetwork["secondaryIpRanges"] if r["rangeName"] == wanted), None)
        if pods is None:
            raise RefusedError(f"400: Pod secondary range {wanted} does not exist")
        mates = [p.args for p in self.of_type(NODE_POOL) if p.args["cluster"] == pool["cluster"]]
        needed = sum(map(_pod_addresses, [*mates, pool]))
        if needed > (size := ipaddress.ip_network(pods["ipCidrRange"]).num_addresses):
            raise RefusedError(f"IP_SPACE_EXHAUSTED: pods need {needed} addresses of {size}")
        nodes = sum(map(_most_nodes, [*mates, pool]))
        usable = ipaddress.ip_network(subnetwork["ipCidrRange"]).num_addresses - 4
        if nodes > usable:
            raise RefusedError(f"IP_SPACE_EXHAUSTED: {nodes} nodes for {usable} addresses")

    def _named(self, type_: str, name: str) -> Made:
        return next(made for made in self.of_type(type_) if made.args["name"] == _last(name))


def number(project: str) -> str:
    """Of a project: any will do that is always the same."""
    return str(10**11 + zlib.crc32(project.encode()))


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _identity_pool(cluster: Args) -> str | None:
    """Autopilot has one whatever is said."""
    if cluster.get("enableAutopilot"):
        return f"{cluster['project']}.svc.id.goog"
    return at(cluster, "workloadIdentityConfig.workloadPool")


def _most_nodes(pool: Args) -> int:
    scaling, zones = pool.get("autoscaling", {}), len(pool.get("nodeLocations", [""]))
    if "totalMaxNodeCount" in scaling:
        return scaling["totalMaxNodeCount"]
    count = pool.get("nodeCount", pool.get("initialNodeCount", 0))
    return zones * scaling.get("maxNodeCount", count)


def _pod_addresses(pool: Args) -> int:
    """GKE gives a node a block of at least twice its pods."""
    block = 1 << (2 * pool.get("maxPodsPerNode", 110) - 1).bit_length()
    return _most_nodes(pool) * block


def _outputs(id_: str, made: Made) -> Args:
    """What is known of a resource once it is there."""
    args, link = made.args, f"https://www.googleapis.com/{id_}"
    project = args.get("project", "-")
    outputs: dict[str, Args] = {
        CLUSTER: {
            "endpoint": f"{zlib.crc32(id_.encode()):08x}.example",
            "masterAuth": {"clusterCaCertificate": "Y2E="},
            "masterVersion": args.get("minMasterVersion", DEFAULT_VERSION),
            "controlPlaneEndpointsConfig.dnsEndpointConfig.endpoint": (
                f"gke-{zlib.crc32(id_.encode()):08x}.{args.get('location')}.gke.goog"
            ),
        },
        ACCOUNT: {"email": f"{args.get('accountId')}@{project}.iam.gserviceaccount.com"},
        BUCKET: {"url": f"gs://{args.get('name')}"},
        SECRET: {"name": f"projects/{number(project)}/secrets/{args.get('secretId')}"},
        REPOSITORY: {"name": args.get("repositoryId")},
    }
    return {"selfLink": link, **outputs.get(made.type, {})}


def _fills(made: Made) -> Args:
    """What GKE adds to a node pool, which the provider then reports as a difference."""
    if made.type != NODE_POOL:
        return {}
    args: dict[str, Any] = made.args
    fills = {path: value for path, value in node_pool.DRIFT.items() if at(args, path) is None}
    if "autoscaling" in args:  # what is there now, not what was asked for
        fills["initialNodeCount"] = args["autoscaling"].get("maxNodeCount", 1)
    return fills
