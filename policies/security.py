"""Security: who may do what, who reaches Ray, what pods may do to their node."""

import re
from collections.abc import Iterable, Iterator

from infra.errors import quote
from policies.pods import Pod, pods, ray_cluster, ray_items, ray_pods
from policies.pools import POOL
from policies.rule import LENIENT_IN_DEV, MANDATORY, Context, kinds, rule
from policies.view import Fault, Item, Node

_PROJECT_ROLES = re.compile(
    r"roles/(owner|editor|storage\..*|container\.(admin|clusterAdmin)|secretmanager\..*"
    r"|iam\.(serviceAccount.*|securityAdmin)|resourcemanager\..*|compute\.(admin|.*Admin))"
)
_PROJECT_IAM = tuple(f"gcp.projects.{kind}" for kind in ("IAMMember", "IAMBinding", "IAMPolicy"))
_DEFAULT_ACCOUNT = re.compile(r"(^default$)|-compute@developer\.gserviceaccount\.com$")
_ANYBODY = ("allUsers", "allAuthenticatedUsers")
_RAY_PORTS = {6379, 8265, 10001, 8000, 52365}
"""Head, dashboard, client, Serve, agent: Ray asks nobody for a password on any of them."""
_OUTSIDE = ("LoadBalancer", "NodePort")
_INTERNAL = ("networking.gke.io/load-balancer-type", "cloud.google.com/load-balancer-type")
_TOKEN_AUTH, _KUBERNETES_AUTH = (2, 52), (2, 55)


@rule(
    "security-project-roles",
    "Nobody gets a role on storage, clusters, secrets or accounts of a whole project.",
    why="A pod of one team would read and delete what is another's.",
    levels=MANDATORY,
    over=kinds(*_PROJECT_IAM),
)
def _project_roles(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["role"]
    if _PROJECT_ROLES.fullmatch(at.text or ""):
        fix = "give a role on the one bucket, secret or repository"
        yield at.fault(f"{at.text} on the whole project", fix)


@rule(
    "security-public-access",
    "Nothing is open to everybody: no bucket, no role.",
    why="allUsers is the whole internet.",
    levels=MANDATORY,
    over=lambda item: (item,) if item.kind.startswith("gcp.") else (),
)
def _public_access(item: Item, _: Context) -> Iterator[Fault]:
    if "IAM" in item.kind or "Iam" in item.kind:
        for member in (item.root["member"], *item.root["members"]):
            if member.text in _ANYBODY:
                yield member.fault(f"{member.text} is everybody", "name who needs it")
    if item.kind == "gcp.storage.Bucket":
        at = item.root["publicAccessPrevention"]
        if at.text != "enforced":
            yield at.fault(f"{_named(at)} lets a role open it to everybody", "write enforced")
        at = item.root["uniformBucketLevelAccess"]
        if at.flag is not True:
            yield at.fault("single objects can have rights of their own", "write true")


def node_settings(item: Item) -> Iterable[Item]:
    return (item,) if item.kind == POOL else ()


@rule(
    "security-node-account",
    "Nodes run as an account of their own.",
    why="Google's default account may edit the whole project.",
    levels=LENIENT_IN_DEV,
    over=node_settings,
)
def _node_account(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["nodeConfig"]["serviceAccount"]
    if at.text is None or _DEFAULT_ACCOUNT.search(at.text):
        fix = "name one with roles/container.defaultNodeServiceAccount only"
        yield at.fault(f"{_named(at)} is the project's default account", fix)


@rule(
    "security-metadata",
    "Pods get tokens of their own identity, never the node's.",
    why="Without GKE_METADATA any pod has what its node may do.",
    levels=LENIENT_IN_DEV,
    over=node_settings,
)
def _metadata(item: Item, _: Context) -> Iterator[Fault]:
    at = item.root["nodeConfig"]["workloadMetadataConfig"]["mode"]
    if at.text != "GKE_METADATA":
        yield at.fault(f"{_named(at)} shows the node's identity to pods", "write GKE_METADATA")


def _named(at: Node) -> str:
    return quote(at.text) if at else "what is taken if it is left out"


@rule(
    "security-pod-account",
    "Pods of Ray run as an account of their workload's.",
    why="What is given to the default account is given to every pod of the namespace.",
    levels=LENIENT_IN_DEV,
    over=lambda item: [pod for pod in ray_pods(item) if pod.role != "other"],
)
def _pod_account(pod: Pod, _: Context) -> Iterator[Fault]:
    at = pod.spec["serviceAccountName"]
    if at.text in (None, "", "default"):
        yield at.fault("runs as the namespace's default account", "name the workload's own")


@rule(
    "security-exposed",
    "Ray's ports are reached from inside the cluster only.",
    why="Who reaches the dashboard runs code: it asks for no password.",
    levels=MANDATORY,
    over=ray_items,
    pains=("P40",),
)
def _exposed(item: Item, _: Context) -> Iterator[Fault]:
    fix = "write ClusterIP and use `kubectl port-forward`"
    head = ray_cluster(item)["headGroupSpec"]
    own = item.root["spec"]
    services = (head["headService"], own["headService"], own["serveService"])
    types = [head["serviceType"], *(service["spec"]["type"] for service in services)]
    for at in types:
        if at.text in _OUTSIDE:
            yield at.fault(f"{at.text} opens Ray's ports to the outside", fix)
    if head["enableIngress"].flag:
        yield head["enableIngress"].fault("opens the dashboard to the outside", "write false")


@rule(
    "security-exposed-service",
    "No service or ingress of others opens Ray's ports.",
    why="As of security-exposed; an internal load balancer is allowed.",
    levels=MANDATORY,
    over=kinds("Service", "Ingress"),
    pains=("P40",),
)
def _exposed_service(item: Item, _: Context) -> Iterator[Fault]:
    if item.kind == "Ingress":
        yield from _ingress(item.root["spec"])
        return
    spec, annotations = item.root["spec"], item.root["metadata"]["annotations"]
    if spec["type"].text not in _OUTSIDE:
        return
    if any((annotations[name].text or "").lower() == "internal" for name in _INTERNAL):
        return
    to_ray = any(key.startswith("ray.io/") for key, _ in spec["selector"].entries())
    for port in spec["ports"]:
        numbers = {port[key].value for key in ("port", "targetPort")}
        if to_ray or numbers & (_RAY_PORTS - {8000}):
            what = f"{spec['type'].text} opens port {quote(port['port'].value)} of Ray"
            yield port.fault(what, "write ClusterIP, or put a gateway that asks for a login before")


def _ingress(spec: Node) -> Iterator[Fault]:
    backends = [spec["defaultBackend"]]
    backends += [path["backend"] for rule_ in spec["rules"] for path in rule_["http"]["paths"]]
    for backend in backends:
        port = backend["service"]["port"]
        if port["number"].value in _RAY_PORTS - {8000} or port["name"].text == "dashboard":
            found = quote(port["number"].value or port["name"].value)
            yield port.fault(f"leads to port {found} of Ray", "leave it out; use a port-forward")


@rule(
    "security-network-policy",
    "A namespace with Ray in it has a network policy.",
    why="Otherwise every pod of the cluster reaches Ray's ports, and so runs code there.",
    levels=LENIENT_IN_DEV,
    over=ray_items,
    pains=("P40",),
)
def _network_policy(item: Item, context: Context) -> Iterator[Fault]:
    own = ray_cluster(item)["networkPolicy"]["mode"].text
    policies = context.view.of("NetworkPolicy")
    if own is None and not any(one.namespace == item.namespace for one in policies):
        what = f"nothing here guards namespace {item.namespace}"
        fix = "add a NetworkPolicy that lets in the namespace and the operator only"
        yield item.root["metadata"]["namespace"].fault(what, fix)


@rule(
    "security-ray-login",
    "Ray's own login is asked for only where Ray and the operator have it.",
    why="An older Ray starts without any, and RayJob and RayService cannot use Kubernetes' tokens.",
    levels=MANDATORY,
    over=ray_items,
    pains=("P40",),
)
def _ray_login(item: Item, _: Context) -> Iterator[Fault]:
    cluster = ray_cluster(item)
    mode, by_kubernetes = (
        cluster["authOptions"]["mode"],
        cluster["authOptions"]["enableK8sTokenAuth"],
    )
    if mode.text != "token":
        return
    needed = _KUBERNETES_AUTH if by_kubernetes.flag else _TOKEN_AUTH
    version = cluster["rayVersion"]
    numbers = tuple(int(part) for part in re.findall(r"\d{1,6}", version.text or "")[:2])
    wanted = ".".join(map(str, needed))
    if numbers < needed:
        what = f"rayVersion {quote(version.text)} has no such login"
        yield mode.fault(what, f"use Ray {wanted} or newer")
    if by_kubernetes.flag and item.kind != "RayCluster":
        what = f"{item.kind} cannot use Kubernetes' tokens"
        yield by_kubernetes.fault(what, "use mode token with a secret, or a RayCluster")


@rule(
    "security-privileged",
    "No pod is privileged, or shares processes with its node.",
    why="Such a pod takes over its node. TPUs have needed no privilege since GKE 1.28.",
    levels=MANDATORY,
    over=pods,
)
def _privileged(pod: Pod, _: Context) -> Iterator[Fault]:
    for key in ("hostPID", "hostIPC"):
        if pod.spec[key].flag:
            yield pod.spec[key].fault("shares the node's processes", "leave it out")
    for container in pod.containers():
        context = container["securityContext"]
        if context["privileged"].flag:
            yield context["privileged"].fault("may do all that its node may", "write false")
        for capability in context["capabilities"]["add"]:
            if capability.text in ("ALL", "SYS_ADMIN"):
                what = f"{capability.text} is as good as privileged"
                yield capability.fault(what, "leave it out")


@rule(
    "security-host",
    "No pod uses its node's network or files.",
    why="Network policies do not hold for the node's network, and its files are others' too.",
    levels=LENIENT_IN_DEV,
    over=pods,
)
def _host(pod: Pod, _: Context) -> Iterator[Fault]:
    if pod.spec["hostNetwork"].flag:
        yield pod.spec["hostNetwork"].fault("uses the node's network", "leave it out")
    for volume in pod.spec["volumes"]:
        if volume["hostPath"]:
            yield volume["hostPath"].fault(
                "mounts files of the node", "use an emptyDir or a bucket"
            )
