"""One broken field a case: the rule that must find it, and a part of what it must say."""

from dataclasses import dataclass, field
from typing import Any

from tests.policies.sets import GONE


@dataclass(frozen=True)
class Case:
    rule: str
    good: str
    """The set that is right."""
    of: str
    """The document in it: Kind/name."""
    changes: dict[str, Any]
    says: str
    limits: dict[str, Any] = field(default_factory=dict)
    pain: str = ""
    """The reported fault that it is, if it is one."""
    whole: bool = False
    environment: str = "prod"


JOB, SERVICE, TOLD = "RayJob/pretrain", "RayService/chat", "RayJob/tune"
JOB_GROUP = "spec.rayClusterSpec.workerGroupSpecs[0]"
JOB_HEAD = "spec.rayClusterSpec.headGroupSpec"
JOB_POD = f"{JOB_GROUP}.template.spec"
JOB_CONTAINER = f"{JOB_POD}.containers[0]"
CHAT_GROUP = "spec.rayClusterConfig.workerGroupSpecs[0]"
CHAT_POD = f"{CHAT_GROUP}.template.spec"
CHAT_CONTAINER = f"{CHAT_POD}.containers[0]"
CLASS = "ComputeClass/v6e-4x8"
TRAIN, CHAT, IRON, FLEX = (
    f"container.NodePool/{name}" for name in ("train-0", "chat-0", "iron-0", "flex-0")
)
CLUSTER, BUCKET = "container.Cluster/acme", "storage.Bucket/acme-runs"
TOPOLOGY, ACCELERATOR = "cloud.google.com/gke-tpu-topology", "cloud.google.com/gke-tpu-accelerator"
HF = "hf_" + "a1B2" * 9


def selector(topology, accelerator="tpu-v6e-slice", **labels):
    return {ACCELERATOR: accelerator, TOPOLOGY: topology, **labels}


def chips(count):
    return {"requests": {"google.com/tpu": count}, "limits": {"google.com/tpu": count}}


def serve(**engine):
    import yaml

    app = {"name": "llm", "args": {"llm_configs": [{"engine_kwargs": engine}]}}
    return yaml.safe_dump({"applications": [app]})


def told(slice_, settings='{"checkpoint_every": 200, "max_failures": 20}'):
    words = f"--settings '{settings}' --output gs://acme-runs/tune --slice '{slice_}'"
    return f"python -m workloads.train.main {words}"


RIGHT = (
    '{"name": "v5e", "slices": 2, "topology": "4x8", "hosts": 8, "chips_per_host": 4, '
    '"devices_per_chip": 1}'
)
SPOT_IN_US_EAST5 = {
    "cloud.google.com/gke-spot": "true",
    "topology.kubernetes.io/zone": "us-east5-b",
}
NO_SPOT = {f"{JOB_POD}.nodeSelector": selector("4x4")}

SLICES = (
    Case(
        "slices-shape",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.resources": chips(8)},
        "4 (ct6e-standard-4t)",
        pain="P01",
    ),
    Case(
        "slices-shape",
        "training",
        JOB,
        {f"{JOB_POD}.nodeSelector": selector("3x5")},
        "no topology of tpu-v6e-slice",
    ),
    Case(
        "slices-shape",
        "training",
        JOB,
        {f"{JOB_POD}.nodeSelector": selector("4x4", "tpu-v6")},
        "is no TPU here",
    ),
    Case(
        "slices-shape",
        "training",
        JOB,
        {f"{JOB_POD}.nodeSelector": {ACCELERATOR: "tpu-v6e-slice"}},
        "does not select",
    ),
    Case(
        "slices-shape",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.resources.requests": {"google.com/tpu": 3}},
        "is not the limit",
    ),
    Case("slices-shape", "training", JOB, {f"{JOB_CONTAINER}.resources": {}}, "asks for no chips"),
    Case(
        "slices-shape",
        "others",
        "Pod/one",
        {"spec.nodeSelector": selector("4x4")},
        "not made of hosts of 8 chips",
        pain="P01",
    ),
    Case("slices-hosts", "training", JOB, {f"{JOB_GROUP}.numOfHosts": 2}, "takes 4", pain="P01"),
    Case("slices-hosts", "training", JOB, {f"{JOB_GROUP}.numOfHosts": GONE}, "takes 4"),
    Case(
        "slices-hosts",
        "training",
        JOB,
        {
            f"{JOB_POD}.nodeSelector": selector("2x4"),
            f"{JOB_CONTAINER}.resources": chips(8),
            f"{JOB_GROUP}.numOfHosts": 2,
        },
        "takes 1",
        pain="P02",
    ),
    Case(
        "slices-hosts",
        "others",
        "JobSet/bench",
        {"spec.replicatedJobs[0].template.spec.parallelism": 2},
        "takes 4",
    ),
    Case(
        "slices-names",
        "training",
        JOB,
        {"metadata.name": "experiment-0353b325-c892-with-a-longer-name"},
        "at most 35",
        pain="P14",
    ),
    Case(
        "slices-names", "serving", SERVICE, {"metadata.name": "s" * 48}, "48 characters", pain="P14"
    ),
    Case(
        "slices-names",
        "training",
        JOB,
        {"metadata.name": "1st-run"},
        "starting with a letter",
        pain="P14",
    ),
    Case(
        "slices-names",
        "training",
        JOB,
        {f"{JOB_GROUP}.groupName": "g" * 60},
        "at most 41",
        pain="P14",
    ),
    Case(
        "slices-workload",
        "told",
        TOLD,
        {"spec.entrypoint": told(RIGHT.replace('"hosts": 8', '"hosts": 4'))},
        "hosts 4, but its pods get 8",
        pain="P30",
    ),
    Case(
        "slices-workload",
        "told",
        TOLD,
        {f"{JOB_GROUP}.maxReplicas": 3},
        "slices 2, but its pods get 3",
    ),
    Case(
        "slices-workers",
        "training",
        JOB,
        {"spec.entrypoint": "python train.py --num_workers 6 --output gs://acme-runs/p"},
        "write --num_workers 4 or 8",
        pain="P30",
    ),
    Case(
        "slices-workers",
        "training",
        JOB,
        {"spec.entrypoint": "python train.py --num-workers=1 --output gs://acme-runs/p"},
        "do not fill",
        pain="P02",
    ),
    Case(
        "slices-engine",
        "serving",
        SERVICE,
        {"spec.serveConfigV2": serve(tensor_parallel_size=1)},
        "= 1 on a slice of 32 chips",
        pain="P20",
    ),
    Case(
        "slices-engine",
        "serving",
        SERVICE,
        {"spec.serveConfigV2": serve(tensor_parallel_size=32, topology="4x4")},
        "is not that of its pods, 4x8",
        pain="P20",
    ),
    Case(
        "slices-engine",
        "serving",
        SERVICE,
        {
            f"{CHAT_POD}.nodeSelector": selector("2x2x4", "tpu7x"),
            "spec.serveConfigV2": serve(tensor_parallel_size=16),
        },
        "= 16 on a slice of 32 devices (16 chips of 2)",
        pain="P20",
    ),
    Case(
        "slices-engine",
        "serving",
        SERVICE,
        {"spec.serveConfigV2": serve(tensor_parallel_size="32")},
        "no whole numbers",
    ),
)

POOLS = (
    Case(
        "pools-shape",
        "cloud",
        TRAIN,
        {"node_config.machine_type": "ct6e-standard-8t"},
        "2x4",
        pain="P01",
    ),
    Case(
        "pools-shape",
        "cloud",
        TRAIN,
        {"node_config.machine_type": "tpu7x-standard-1t"},
        "is no machine for slices",
    ),
    Case(
        "pools-placement",
        "cloud",
        CHAT,
        {"placement_policy": {"type": "COMPACT", "tpu_topology": "2x4"}},
        "refuses a topology for one host",
        pain="P03",
    ),
    Case("pools-placement", "cloud", TRAIN, {"placement_policy.type": ""}, "write COMPACT"),
    Case(
        "pools-placement",
        "cloud",
        IRON,
        {"placement_policy.type": "COMPACT"},
        "takes no COMPACT",
        pain="P06",
    ),
    Case(
        "pools-placement",
        "cloud",
        IRON,
        {"placement_policy.policy_name": GONE},
        "HIGH_THROUGHPUT",
        pain="P06",
    ),
    Case(
        "pools-whole",
        "cloud",
        TRAIN,
        {"autoscaling": {"total_min_node_count": 0, "total_max_node_count": 4}},
        "in total",
        pain="P07",
    ),
    Case(
        "pools-whole", "cloud", TRAIN, {"autoscaling.max_node_count": 3}, "has 4 hosts", pain="P07"
    ),
    Case(
        "pools-whole",
        "cloud",
        TRAIN,
        {"autoscaling.location_policy": "BALANCED"},
        "write ANY",
        pain="P07",
    ),
    Case(
        "pools-whole",
        "cloud",
        TRAIN,
        {"node_locations[1]": "us-east5-a"},
        "name one zone",
        pain="P07",
    ),
    Case("pools-whole", "cloud", IRON, {"initial_node_count": 1}, "1 of 2 hosts"),
    Case("pools-whole", "cloud", IRON, {"initial_node_count": GONE}, "no size is said"),
    Case("pools-terms", "cloud", FLEX, {"management.auto_repair": True}, "write false", pain="P09"),
    Case(
        "pools-terms",
        "cloud",
        FLEX,
        {"autoscaling": GONE, "initial_node_count": 4},
        "no fixed size",
        pain="P09",
    ),
    Case(
        "pools-terms",
        "cloud",
        FLEX,
        {"node_config.spot": True},
        "spot and flex-start at once",
        pain="P09",
    ),
    Case(
        "pools-terms", "cloud", FLEX, {"autoscaling.min_node_count": 4}, "starts at 0", pain="P09"
    ),
    Case("pools-terms", "cloud", CHAT, {"node_config.spot": True}, "spot and a reservation"),
    Case(
        "pools-terms",
        "cloud",
        CHAT,
        {"node_config.reservation_affinity.key": GONE},
        "names no reservation",
        pain="P10",
    ),
    Case(
        "pools-terms",
        "cloud",
        CHAT,
        {"node_config.reservation_affinity": GONE},
        "is not said",
        pain="P10",
    ),
    Case(
        "pools-terms",
        "cloud",
        CHAT,
        {"node_config.reservation_affinity.consume_reservation_type": "ANY_RESERVATION"},
        "no ANY_RESERVATION",
    ),
    Case(
        "pools-flex-queued",
        "cloud",
        FLEX,
        {"queued_provisioning": {"enabled": True}},
        "some versions",
        pain="P09",
    ),
)

CAPACITY = (
    Case(
        "capacity-class",
        "serving",
        CLASS,
        {"spec.priorities[0].tpu.topology": "4x4"},
        "no worker group",
    ),
    Case(
        "capacity-class",
        "serving",
        CLASS,
        {"spec.priorities[1].spot": GONE},
        "matches spot nodes too",
    ),
    Case(
        "capacity-class", "serving", CLASS, {"spec.priorities[2].spot": True}, "flex-start and spot"
    ),
    Case(
        "capacity-class",
        "serving",
        CLASS,
        {"spec.whenUnsatisfiable": "ScaleUpAnyway"},
        "DoNotScaleUp",
    ),
    Case(
        "capacity-class",
        "serving",
        CLASS,
        {"spec.priorities[1].location.zones[1]": "us-east5-a"},
        "one priority of each zone",
    ),
    Case(
        "capacity-class",
        "serving",
        CLASS,
        {"spec.priorities[1].tpu.count": 32},
        "all chips of the slice",
    ),
    Case(
        "capacity-pin",
        "serving",
        SERVICE,
        {
            f"{CHAT_POD}.nodeSelector": selector(
                "4x8",
                **{
                    "cloud.google.com/compute-class": "v6e-4x8",
                    "cloud.google.com/gke-nodepool": "p",
                },
            )
        },
        "no other rung",
        pain="P12",
    ),
    Case(
        "capacity-pin",
        "serving",
        SERVICE,
        {
            f"{CHAT_POD}.affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": {
                                "matchExpressions": [
                                    {
                                        "key": "cloud.google.com/compute-class",
                                        "operator": "In",
                                        "values": ["v6e-4x8"],
                                    }
                                ]
                            },
                        }
                    ]
                }
            }
        },
        "makes no nodes",
        pain="P12",
    ),
    Case(
        "capacity-class-exists",
        "serving",
        CLASS,
        {"metadata.name": "another"},
        "there is no compute class",
        whole=True,
    ),
    Case(
        "capacity-job-ends",
        "training",
        JOB,
        {"spec.shutdownAfterJobFinishes": False},
        "stays",
        pain="P19",
    ),
    Case(
        "capacity-job-ends",
        "training",
        JOB,
        {"spec.ttlSecondsAfterFinished": GONE},
        "how long",
        pain="P19",
    ),
    Case(
        "capacity-job-ends",
        "training",
        JOB,
        {"spec.activeDeadlineSeconds": GONE},
        "for ever",
        pain="P19",
    ),
    Case(
        "capacity-job-starts",
        "training",
        JOB,
        {"spec.preRunningDeadlineSeconds": GONE},
        "KubeRay is 1.6",
        pain="P19",
    ),
    Case(
        "capacity-job-submitter",
        "training",
        JOB,
        {"spec.submissionMode": "SidecarMode"},
        "K8sJobMode",
        pain="P19",
    ),
)

RUNS = (
    Case(
        "runs-go-on",
        "training",
        JOB,
        {"metadata.annotations.raytpu/max-failures": "0"},
        "first host that is taken",
        pain="P31",
    ),
    Case(
        "runs-go-on",
        "told",
        TOLD,
        {"spec.entrypoint": told(RIGHT, '{"checkpoint_every": 200, "max_failures": 0}')},
        "first host that is taken",
        pain="P31",
    ),
    Case(
        "runs-saved",
        "training",
        JOB,
        {"spec.entrypoint": "python train.py"},
        "no shared storage",
        pain="P31",
    ),
    Case(
        "runs-saved",
        "training",
        JOB,
        {"spec.entrypoint": "python train.py --output /tmp/run", **NO_SPOT},
        "a folder of each host",
        pain="P32",
    ),
    Case(
        "runs-lose-little",
        "training",
        JOB,
        {"metadata.annotations.raytpu/checkpoint-steps": "5000"},
        "2500 s, over the limit of 900",
        pain="P31",
    ),
    Case(
        "runs-lose-little",
        "training",
        JOB,
        {"metadata.annotations.raytpu/checkpoint-steps": GONE},
        "is not said",
    ),
    Case(
        "runs-lose-little",
        "told",
        TOLD,
        {"spec.entrypoint": told(RIGHT, '{"checkpoint_every": 2000, "max_failures": 20}')},
        "over the limit of 1000",
        pain="P31",
    ),
    Case(
        "runs-lose-little",
        "told",
        TOLD,
        {"spec.entrypoint": told(RIGHT, '{"max_failures": 20}').replace("train", "spmd")},
        "how often it saves is not said; write checkpoint_every",
    ),
)

START = (
    Case(
        "start-bucket-mount",
        "serving",
        SERVICE,
        {f"{CHAT_GROUP}.template.metadata": {}},
        'annotate "true"',
        pain="P18",
    ),
    Case(
        "start-bucket-mount",
        "serving",
        SERVICE,
        {f"{CHAT_POD}.serviceAccountName": GONE},
        "the default account",
        pain="P18",
    ),
    Case(
        "start-mount-everywhere",
        "serving",
        SERVICE,
        {"spec.rayClusterConfig.headGroupSpec.template.spec.volumes": []},
        "the head does not",
        pain="P18",
    ),
    Case(
        "start-compile-cache",
        "serving",
        SERVICE,
        {f"{CHAT_CONTAINER}.env[0].value": "gs://acme/cache"},
        "nothing in a bucket",
        pain="P23",
    ),
    Case(
        "start-compile-cache",
        "serving",
        SERVICE,
        {f"{CHAT_CONTAINER}.env[0].value": "/model/cache"},
        "8 hosts write one cache",
        pain="P23",
    ),
    Case(
        "start-probe",
        "serving",
        SERVICE,
        {f"{CHAT_CONTAINER}.startupProbe": GONE},
        "after 30 s",
        pain="P23",
    ),
    Case(
        "start-service-timeout",
        "serving",
        SERVICE,
        {"metadata.annotations": {}},
        "is not said",
        pain="P23",
    ),
    Case(
        "start-service-timeout",
        "serving",
        SERVICE,
        {"metadata.annotations": {"ray.io/initializing-timeout": "10m"}},
        "less than compiling",
        pain="P23",
    ),
    Case(
        "start-slice-variables",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.env[1]": {"name": "MEGASCALE_NUM_SLICES", "value": "3"}},
        "set by hand",
        pain="P29",
    ),
    Case(
        "start-slice-variables",
        "training",
        JOB,
        {"spec.runtimeEnvYAML": "env_vars: {MEGASCALE_SLICE_ID: '0'}"},
        "MEGASCALE_SLICE_ID is set by hand",
        pain="P29",
    ),
    Case(
        "runs-ray-version",
        "told",
        TOLD,
        {"spec.rayClusterSpec.rayVersion": "2.55.1"},
        "use Ray 2.56 or newer in rayVersion",
        pain="P29",
    ),
    Case(
        "runs-operator-version",
        "training",
        JOB,
        {"metadata.annotations.raytpu/kuberay": "1.5.1"},
        "KubeRay 1.5 replaces a lost host without the 3 others",
        pain="P16",
    ),
    Case(
        "runs-operator-version",
        "told",
        "Namespace/research",
        {"metadata.annotations.raytpu/kuberay": "v1.4"},
        "KubeRay 1.4 replaces a lost host without the 7 others",
        pain="P16",
    ),
)

CHANGES = (
    Case(
        "changes-second-slice", "serving", SERVICE, {"spec.upgradeStrategy": GONE}, "32 chips more"
    ),
    Case("changes-pool-upgrade", "cloud", TRAIN, {"upgrade_settings.max_surge": 1}, "second slice"),
    Case(
        "changes-pool-upgrade",
        "cloud",
        TRAIN,
        {"upgrade_settings": {"strategy": "BLUE_GREEN"}},
        "second slice",
    ),
    Case(
        "changes-protection-said",
        "cloud",
        CLUSTER,
        {"deletion_protection": GONE},
        "left out",
        pain="P34",
        environment="dev",
    ),
    Case(
        "changes-protection",
        "cloud",
        CLUSTER,
        {"deletion_protection": False},
        "one command deletes it",
        pain="P34",
    ),
    Case(
        "changes-force-destroy",
        "cloud",
        BUCKET,
        {"force_destroy": True},
        "its content goes",
        pain="P34",
    ),
)

SECURITY = (
    Case(
        "security-control-plane",
        "cloud",
        CLUSTER,
        {"master_authorized_networks_config": GONE},
        "answers to everybody",
    ),
    Case(
        "security-control-plane",
        "cloud",
        CLUSTER,
        {"master_authorized_networks_config.cidr_blocks[0].cidr_block": "0.0.0.0/0"},
        "0.0.0.0/0 is everybody",
    ),
    Case(
        "secrets-literal",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.env[1]": {"name": "ANY", "value": HF}},
        "a Hugging Face token",
    ),
    Case(
        "secrets-literal",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.env[1]": {"name": "HF_TOKEN", "value": "short"}},
        "HF_TOKEN is written out",
    ),
    Case(
        "secrets-literal",
        "training",
        JOB,
        {"spec.entrypoint": "WANDB_API_KEY=0123456789 python t.py --output gs://acme-runs/p"},
        "WANDB_API_KEY is written out",
    ),
    Case(
        "secrets-literal",
        "training",
        JOB,
        {"spec.entrypoint": "python t.py --hf-token abcdefgh --output gs://acme-runs/p"},
        "hf-token is written out",
    ),
    Case(
        "secrets-literal",
        "training",
        JOB,
        {"spec.runtimeEnvYAML": "env_vars: {DB_PASSWORD: hunter22}"},
        "DB_PASSWORD is written out",
    ),
    Case(
        "secrets-literal",
        "others",
        "ConfigMap/settings",
        {"data.address": "redis://:hunter22@redis:6379"},
        "an address with a password",
    ),
    Case(
        "secrets-literal",
        "others",
        "ConfigMap/settings",
        {"data.key": "-----BEGIN RSA PRIVATE KEY-----\nabc"},
        "a private key",
    ),
    Case(
        "secrets-in-files",
        "others",
        "Secret/filled-by-another",
        {"data.token": "aHVudGVyMg=="},
        "holds its value",
    ),
    Case(
        "secrets-keys",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.env[1]": {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/k.json"}},
        "Workload Identity",
    ),
    Case(
        "security-project-roles",
        "cloud",
        "projects.IAMMember/0",
        {"role": "roles/storage.admin"},
        "on the whole project",
    ),
    Case(
        "security-project-roles",
        "cloud",
        "projects.IAMMember/0",
        {"role": "roles/container.admin"},
        "on the whole project",
    ),
    Case(
        "security-public-access",
        "cloud",
        "storage.BucketIAMMember/0",
        {"member": "allUsers"},
        "everybody",
    ),
    Case(
        "security-public-access",
        "cloud",
        BUCKET,
        {"public_access_prevention": "inherited"},
        "write enforced",
    ),
    Case(
        "security-public-access",
        "cloud",
        BUCKET,
        {"uniform_bucket_level_access": GONE},
        "rights of their own",
    ),
    Case(
        "security-node-account",
        "cloud",
        TRAIN,
        {"node_config.service_account": GONE},
        "default account",
    ),
    Case(
        "security-node-account",
        "cloud",
        TRAIN,
        {"node_config.service_account": "1-compute@developer.gserviceaccount.com"},
        "default account",
    ),
    Case(
        "security-metadata",
        "cloud",
        TRAIN,
        {"node_config.workload_metadata_config": GONE},
        "GKE_METADATA",
    ),
    Case(
        "security-pod-account",
        "training",
        JOB,
        {f"{JOB_POD}.serviceAccountName": "default"},
        "default account",
    ),
    Case(
        "security-exposed",
        "training",
        JOB,
        {f"{JOB_HEAD}.serviceType": "LoadBalancer"},
        "ClusterIP",
        pain="P40",
    ),
    Case(
        "security-exposed",
        "training",
        JOB,
        {f"{JOB_HEAD}.enableIngress": True},
        "dashboard",
        pain="P40",
    ),
    Case(
        "security-exposed-service",
        "serving",
        "Service/gateway",
        {"metadata.annotations": {}},
        "of Ray",
        pain="P40",
    ),
    Case(
        "security-exposed-service",
        "serving",
        "Ingress/site",
        {"spec.rules[0].http.paths[0].backend.service.port.number": 8265},
        "leads to port 8265 of Ray",
        pain="P40",
    ),
    Case(
        "security-network-policy",
        "training",
        "NetworkPolicy/default",
        {"metadata.namespace": "elsewhere"},
        "nothing here guards namespace research",
        pain="P40",
    ),
    Case(
        "security-ray-login",
        "training",
        JOB,
        {"spec.rayClusterSpec.rayVersion": "2.51.0"},
        "2.52",
        pain="P40",
    ),
    Case(
        "security-ray-login",
        "training",
        JOB,
        {"spec.rayClusterSpec.authOptions.enableK8sTokenAuth": True},
        "RayJob cannot use",
        pain="P40",
    ),
    Case(
        "security-privileged",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.securityContext.privileged": True},
        "write false",
    ),
    Case("security-privileged", "others", "Pod/one", {"spec.hostPID": True}, "processes"),
    Case(
        "security-privileged",
        "others",
        "Pod/one",
        {"spec.containers[0].securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
        "as good as privileged",
    ),
    Case("security-host", "others", "Pod/one", {"spec.hostNetwork": True}, "network"),
    Case(
        "security-host",
        "others",
        "Pod/one",
        {"spec.volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
        "files of the node",
    ),
)

HYGIENE = (
    Case(
        "hygiene-labels",
        "cloud",
        TRAIN,
        {"node_config.resource_labels.cost_center": GONE},
        "lacks cost_center",
    ),
    Case(
        "hygiene-labels",
        "cloud",
        BUCKET,
        {"labels": GONE},
        "lacks team and environment and cost_center",
    ),
    Case(
        "hygiene-quota",
        "training",
        "ResourceQuota/tpu",
        {"spec.hard": {"cpu": "8"}},
        "bounds the chips",
    ),
    Case(
        "hygiene-chips",
        "training",
        JOB,
        {},
        "16 chips with this one, over the budget of 15",
        {"max_chips": 15},
    ),
    Case(
        "hygiene-budget",
        "training",
        JOB,
        {f"{JOB_POD}.nodeSelector": selector("4x4", **SPOT_IN_US_EAST5)},
        # 16 chips x 24 hours x 1.35 USD
        "518 USD a month with this one, over the budget of 518; write fewer replicas",
        {"max_usd_per_month": 518},
    ),
    Case(
        "hygiene-budget",
        "cloud",
        "container.NodePool/cpu",
        {"autoscaling.total_max_node_count": 80},
        "raise limits.max_usd_per_month",
        # 80 nodes of 8 vCPUs, 730 hours, 0.048559 USD: 22,687
        {"max_usd_per_month": 22_600},
    ),
    Case(
        "hygiene-generations",
        "training",
        JOB,
        {},
        "v6e is not for this team",
        {"generations": ["v5e"]},
    ),
    Case(
        "hygiene-generations",
        "cloud",
        TRAIN,
        {},
        "v6e is not for this team",
        {"generations": ["tpu7x"]},
    ),
    Case(
        "hygiene-zones",
        "cloud",
        TRAIN,
        {},
        "'us-east5-b' is not for this team",
        {"zones": ["us-east5-a", "us-central1-c"]},
    ),
    Case(
        "hygiene-zones",
        "serving",
        CLASS,
        {},
        "'us-east5-a' is not for this team",
        {"zones": ["us-east5-b"]},
    ),
    Case(
        "images-registry",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.image": "rayproject/ray@sha256:" + "1" * 64},
        "no allowed registry",
    ),
    Case(
        "images-pinned",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.image": "us-docker.pkg.dev/acme/ray/ray:1"},
        "can change",
    ),
    Case(
        "images-tagged",
        "training",
        JOB,
        {f"{JOB_CONTAINER}.image": "us-docker.pkg.dev/acme/ray/ray:latest"},
        "newest",
    ),
)

CASES = (*SLICES, *POOLS, *CAPACITY, *RUNS, *START, *CHANGES, *SECURITY, *HYGIENE)
