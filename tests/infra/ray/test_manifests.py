"""Each workload as Ray objects: numbers by hand, and what users were bitten by."""

import json

import pytest
import yaml

from infra.ray.manifests import cluster_spec
from tests.infra.ray.stacks import FILES, SERVE, TRAIN, cluster_of, gke, made, shipped

V6E = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
CHAT = {"name": "chat", "machine_type": "ct6e-standard-8t", "topology": "2x4"}
NEWER = {"kuberay": "1.6"}


def object_of(config, key):
    return made(config)[key].manifest


def group_of(config, key):
    (group,) = cluster_of(object_of(config, key))["workerGroupSpecs"]
    return group


def container_of(template):
    (container,) = template["spec"]["containers"]
    return container


def environment(template):
    return {one["name"]: one.get("value") for one in container_of(template)["env"]}


# Of every group with chips in every stack, by hand: stack, object, group, replicas, the fewest and
# the most of them, hosts of each, chips, CPUs and GiB of a host.
GROUPS = """
dev         RayService/chat         chat              1 1 1  1  8  177 1377
staging     RayJob/pretrain         train             1 1 1  4  4  177  683
staging     RayService/chat         chat              1 1 1  4  4  177  683
prod        RayJob/pretrain         train             2 2 2  8  4  177  683
prod        RayService/chat         chat              2 2 2  1  8  177 1377
autopilot   RayService/chat         chat              1 1 1  1  8  177 1377
existing    RayJob/pretrain         train             1 1 1  4  4  177  683
existing    RayService/chat         chat              1 1 1  1  4  177  683
tpu7x       RayJob/pretrain         train             1 1 1  2  4  221  914
v5p         RayJob/pretrain         train             1 1 1  4  4  205  421
v5e         RayService/chat         chat              1 1 1  1  8  221  359
llama-70b   RayService/chat         chat              1 1 1  1  8  177 1377
qwen3-lora  RayJob/tune             tune              1 1 1  1  8  177 1377
qwen3-lora  RayService/chat         chat              1 1 1  1  8  177 1377
mistral-7b  RayService/chat         chat              2 2 2  1  4  109  174
two-shapes  RayCluster/interactive  train             1 0 1  8  4  177  683
two-shapes  RayCluster/interactive  train-v5e-4x4     0 0 1  4  4  109  174
second-choice RayJob/pretrain       train             0 0 1  8  4  177  683
second-choice RayJob/pretrain       train-v5e-4x4     0 0 1  4  4  109  174
"""


def _rows():
    for stack in FILES:
        for key, one in made(shipped(stack)).items():
            if one.manifest["apiVersion"] != "ray.io/v1":
                continue
            for group in cluster_of(one.manifest)["workerGroupSpecs"]:
                limits = container_of(group["template"])["resources"]["limits"]
                if "google.com/tpu" in limits:
                    scale = [group[k] for k in ("replicas", "minReplicas", "maxReplicas")]
                    size = [limits["google.com/tpu"], limits["cpu"], limits["memory"]]
                    row = [stack, key, group["groupName"], *scale, group["numOfHosts"], *size]
                    yield " ".join(str(one).removesuffix("Gi") for one in row)


def test_every_slice_of_every_stack_is_asked_for_as_counted_by_hand():
    assert {*_rows()} == {" ".join(line.split()) for line in GROUPS.strip().splitlines()}


@pytest.mark.parametrize("stack", FILES)
def test_requests_equal_limits_everywhere(stack):
    for one in made(shipped(stack)).values():
        if one.manifest["apiVersion"] == "ray.io/v1":
            cluster = cluster_of(one.manifest)
            for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
                resources = container_of(group["template"])["resources"]
                assert resources["requests"] == resources["limits"]


@pytest.mark.parametrize("stack", FILES)
def test_no_head_holds_a_chip_runs_tasks_or_shows_its_dashboard_to_the_world(stack):
    for one in made(shipped(stack)).values():
        if one.manifest["apiVersion"] == "ray.io/v1":
            head = cluster_of(one.manifest)["headGroupSpec"]
            assert head["serviceType"] == "ClusterIP"
            assert head["rayStartParams"]["num-cpus"] == "0"
            assert "google.com/tpu" not in container_of(head["template"])["resources"]["limits"]
            assert "nodeSelector" not in head["template"]["spec"]
            assert environment(head["template"])["JAX_PLATFORMS"] == "cpu"


@pytest.mark.parametrize("stack", FILES)
def test_nobody_sets_what_the_webhook_and_ray_train_set(stack):
    text = json.dumps([one.manifest for one in made(shipped(stack)).values()], default=str)
    assert "MEGASCALE" not in text
    assert "TPU_WORKER" not in text
    assert "podAffinity" not in text


def test_a_multi_host_slice_of_two_copies_is_one_group_of_two_replicas():
    group = group_of(shipped("prod"), "RayJob/pretrain")
    assert group["template"]["spec"]["nodeSelector"] == {
        "raytpu/slice": "train",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x8",
        "cloud.google.com/gke-accelerator-count": "4",
    }
    assert group["labels"] == {
        "raytpu/slice": "train",
        "raytpu/generation": "v6e",
        "raytpu/topology": "4x8",
        "raytpu/pod-type": "v6e-32",
        "raytpu/capacity": "reservation",
        "raytpu/reservation": "v6e-train-2026",
        "ray.io/market-type": "on-demand",
        "ray.io/availability-zone": "us-east5-b",
        "ray.io/availability-region": "us-east5",
    }


def test_a_group_of_a_ladder_says_mixed_and_names_no_market():
    labels = group_of(shipped("staging"), "RayJob/pretrain")["labels"]
    assert labels["raytpu/capacity"] == "mixed"
    assert labels["raytpu/compute-class"] == "raytpu-staging-train"
    assert labels["raytpu/reservation"] == "v6e-2026"
    assert not {"ray.io/market-type", "ray.io/availability-zone"} & labels.keys()


def test_a_spot_group_says_so_to_ray_and_tolerates_the_taint():
    group = group_of(shipped("dev"), "RayService/chat")
    assert (group["labels"]["raytpu/capacity"], group["labels"]["ray.io/market-type"]) == (
        "spot",
        "spot",
    )
    keys = [one["key"] for one in group["template"]["spec"]["tolerations"]]
    assert keys == ["google.com/tpu", "cloud.google.com/gke-spot"]


def test_a_group_beside_a_compute_class_selects_nothing_that_gke_refuses_there():
    selector = group_of(shipped("staging"), "RayJob/pretrain")["template"]["spec"]["nodeSelector"]
    assert selector == {
        "cloud.google.com/compute-class": "raytpu-staging-train",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-accelerator-count": "4",
    }


def test_in_a_cluster_of_others_pods_select_only_labels_that_gke_sets():
    spot = {**CHAT, "capacity": [{"spot": {}}]}
    config = gke([spot], [SERVE])
    assert "raytpu/slice" in json.dumps(object_of(config, "RayService/chat"))
    group = group_of(shipped("existing"), "RayService/chat")
    assert "raytpu/slice" not in group["template"]["spec"]["nodeSelector"]


def test_a_job_gives_its_slices_back_at_once_and_its_cpus_when_looked_at():
    config = shipped("staging")
    data, train = (object_of(config, f"RayJob/{name}")["spec"] for name in ("corpus", "pretrain"))
    assert (data["shutdownAfterJobFinishes"], data["ttlSecondsAfterFinished"]) == (True, 3600)
    assert (train["shutdownAfterJobFinishes"], train["ttlSecondsAfterFinished"]) == (True, 0)


def test_no_newer_operator_is_told_rules_that_know_no_stopped_job():
    spec = object_of(gke([V6E], [TRAIN], cluster=NEWER), "RayJob/pretrain")["spec"]
    assert (spec["shutdownAfterJobFinishes"], spec["ttlSecondsAfterFinished"]) == (True, 0)
    assert "deletionStrategy" not in spec


def test_a_job_has_deadlines_and_a_submitter_of_its_own():
    job = {**TRAIN, "deadline": "14d", "start_deadline": "2h", "retries": 2}
    old = object_of(gke([V6E], [job]), "RayJob/pretrain")["spec"]
    assert (old["submissionMode"], old["backoffLimit"]) == ("K8sJobMode", 2)
    assert old["activeDeadlineSeconds"] == 1_209_600
    assert "preRunningDeadlineSeconds" not in old
    new = object_of(gke([V6E], [job], cluster=NEWER), "RayJob/pretrain")["spec"]
    assert new["preRunningDeadlineSeconds"] == 7200


def test_a_data_job_runs_on_cpus_alone():
    group = group_of(shipped("prod"), "RayJob/corpus")
    assert [group[key] for key in ("replicas", "minReplicas", "maxReplicas")] == [8, 8, 8]
    limits = container_of(group["template"])["resources"]["limits"]
    assert limits == {"cpu": "3", "memory": "12Gi"}


def test_serve_is_told_the_slice_and_the_engine():
    spec = object_of(shipped("prod"), "RayService/chat")["spec"]
    (application,) = yaml.safe_load(spec["serveConfigV2"])["applications"]
    assert application["import_path"] == "workloads.serve.vllm:build"
    args = application["args"]
    assert (args["model"], args["replicas"]) == ("Qwen/Qwen3-8B", 2)
    assert (args["slice"]["topology"], args["slice"]["hosts"]) == ("2x4", 1)
    assert args["slice"]["chips_per_host"] == 8


def test_the_args_of_every_served_model_are_those_that_its_builder_reads():
    from workloads.serve.app import AppArgs
    from workloads.serve.vllm import VllmArgs

    models = {"workloads.serve.app:build": AppArgs, "workloads.serve.vllm:build": VllmArgs}
    served = {}
    for stack in FILES:
        if service := made(shipped(stack)).get("RayService/chat"):
            (application,) = yaml.safe_load(service.manifest["spec"]["serveConfigV2"])[
                "applications"
            ]
            args = models[application["import_path"]].model_validate(application["args"])
            served[stack] = (str(args.model), args.replicas)
    assert served == {
        "autopilot": ("Qwen/Qwen3-4B", 1),
        "dev": ("Qwen/Qwen3-4B", 1),
        "existing": ("/model", 1),
        "llama-70b": ("meta-llama/Llama-3.1-70B-Instruct", 1),
        "mistral-7b": ("mistralai/Mistral-7B-Instruct-v0.1", 2),
        "prod": ("Qwen/Qwen3-8B", 2),
        "qwen3-lora": ("/model", 1),
        "staging": ("Qwen/Qwen3-32B", 1),
        "v5e": ("meta-llama/Meta-Llama-3-8B-Instruct", 1),
    }


def test_every_pod_of_a_service_sees_the_trained_model_with_the_annotation_that_mounts_it():
    config = shipped("existing")
    run = (
        object_of(config, "RayJob/pretrain")["spec"]["entrypoint"].split("--output ")[1].split()[0]
    )
    cluster = cluster_of(object_of(config, "RayService/chat"))
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        template = group["template"]
        (volume,) = (one for one in template["spec"]["volumes"] if one["name"] == "model")
        assert template["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
        assert template["spec"]["serviceAccountName"] == "chat"
        attributes = volume["csi"]["volumeAttributes"]
        folder = attributes["mountOptions"].removeprefix("implicit-dirs,only-dir:")
        assert f"gs://{attributes['bucketName']}/{folder}" == f"{run}/export"
        mounts = container_of(template)["volumeMounts"]
        assert {"name": "model", "mountPath": "/model", "readOnly": True} in mounts


def test_an_upgrade_asks_for_a_second_set_of_slices_only_if_the_user_says_so():
    spec = object_of(shipped("prod"), "RayService/chat")["spec"]
    assert spec["upgradeStrategy"] == {"type": "None"}
    by_class = {**CHAT, "provision": "compute_class"}
    config = gke([by_class], [{**SERVE, "upgrade": "new_cluster"}])
    assert object_of(config, "RayService/chat")["spec"]["upgradeStrategy"] == {"type": "NewCluster"}


def test_no_declared_probe_or_timeout_ends_a_first_compilation_of_half_an_hour():
    for stack in ("dev", "staging", "prod"):
        service = object_of(shipped(stack), "RayService/chat")
        assert "livenessProbe" not in json.dumps(service)
        assert "startupProbe" not in json.dumps(service)
        annotations = service["metadata"]["annotations"]
        # 45 minutes for the model, 30 for the nodes; the operator's own patience is longer.
        assert annotations["pulumi.com/timeoutSeconds"] == "4500"
        assert annotations["ray.io/initializing-timeout"] == "9000s"


def test_what_jax_compiled_outlives_the_node():
    train = group_of(shipped("staging"), "RayJob/pretrain")["template"]
    bucket = "gs://acme-ml-raytpu-staging-cache/jax"
    assert environment(train)["JAX_COMPILATION_CACHE_DIR"] == bucket
    others = group_of(shipped("existing"), "RayService/chat")["template"]
    bucket = "gs://acme-ml-raytpu/existing/cache/jax"
    assert environment(others)["JAX_COMPILATION_CACHE_DIR"] == bucket


def test_compiled_programs_and_models_of_vllm_stay_on_the_node():
    template = group_of(shipped("dev"), "RayService/chat")["template"]
    variables = environment(template)
    assert variables["JAX_COMPILATION_CACHE_DIR"] == "/cache/jax"
    assert variables["VLLM_XLA_CACHE_PATH"] == "/cache/vllm"
    assert variables["HF_HOME"] == "/cache/hugging-face"
    assert {"name": "cache", "emptyDir": {}} in template["spec"]["volumes"]


def test_a_service_with_redis_outlives_its_head():
    options = cluster_of(object_of(shipped("prod"), "RayService/chat"))["gcsFaultToleranceOptions"]
    assert options == {"redisAddress": "redis://redis.assistant.svc:6379"}
    redis = {"address": "rediss://redis:6380", "password": "hidden"}
    config = gke([CHAT], [{**SERVE, "redis": redis}])
    options = cluster_of(object_of(config, "RayService/chat"))["gcsFaultToleranceOptions"]
    reference = {"name": "chat", "key": "redis-password"}
    assert options["redisPassword"] == {"valueFrom": {"secretKeyRef": reference}}


def test_a_cluster_to_work_on_scales_by_whole_slices_and_gives_idle_ones_back():
    spec = cluster_of(object_of(shipped("two-shapes"), "RayCluster/interactive"))
    assert spec["enableInTreeAutoscaling"] is True
    assert spec["autoscalerOptions"]["version"] == "v2"
    assert spec["autoscalerOptions"]["idleTimeoutSeconds"] == 1800
    # The autoscaler beside the head reaches the API server; no other pod has a token.
    tokens = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    found = [one["template"]["spec"]["automountServiceAccountToken"] for one in tokens]
    assert found == [True, False, False]


def test_images_are_those_of_the_engine():
    config = gke([V6E, CHAT], [TRAIN, SERVE])
    images = [
        container_of(cluster_spec(config, one)["headGroupSpec"]["template"])["image"]
        for one in config.workloads
    ]
    assert images == ["registry.example/ray:1", "registry.example/vllm:1"]


@pytest.mark.parametrize("stack", FILES)
def test_a_pinned_image_is_pulled_once(stack):
    for one in made(shipped(stack)).values():
        if one.manifest["apiVersion"] == "ray.io/v1":
            cluster = cluster_of(one.manifest)
            for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
                container = container_of(group["template"])
                assert container["imagePullPolicy"] == "IfNotPresent"
                assert not container["image"].endswith(":latest")


def test_a_training_host_saves_before_it_goes():
    """What the hook may take is part of the pod's own time, of which Ray needs some for its end."""
    config = shipped("prod")
    pod = group_of(config, "RayJob/pretrain")["template"]
    *command, limit_s = container_of(pod)["lifecycle"]["preStop"]["exec"]["command"]
    assert command == ["python", "-m", "workloads.drain", "--limit-s"]
    assert 0 < int(limit_s) < pod["spec"]["terminationGracePeriodSeconds"]
    assert "lifecycle" not in container_of(group_of(config, "RayService/chat")["template"])
