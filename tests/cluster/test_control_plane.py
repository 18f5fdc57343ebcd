"""The control plane is the real one, asks everybody who they are, and says why if it ends."""

import gzip
import json
import re
import ssl
import stat
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from kubernetes import client
from kubernetes.client import ApiException

from tests.cluster.waiting import running, wait
from tests.tools.project import REPOSITORY
from tools.cluster import operator
from tools.cluster.control_plane import HOST, ControlPlane, free_ports


def pod(name, **container):
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", **container}]},
    }


@pytest.fixture
def namespace(control_plane, request):
    """An empty one; what is in it ends with the session."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:60].strip("-")
    core: Any = client.CoreV1Api(control_plane.api)
    core.create_namespace({"metadata": {"name": name}})
    wait(lambda: has_account(core, name))
    return name


def has_account(core, namespace):
    accounts = core.list_namespaced_service_account(namespace).items
    return any(account.metadata.name == "default" for account in accounts)


def ask(control_plane, path, **headers):
    context = ssl.create_default_context(cafile=control_plane.authority.path)
    url = f"{control_plane.server}{path}"
    return httpx.get(url, verify=context, headers=headers, trust_env=False, timeout=30)


def test_the_server_is_the_kubernetes_that_is_pinned(control_plane):
    module = (REPOSITORY / "tools/go/cluster/go.mod").read_text()
    pinned = re.search(r"k8s\.io/kubernetes (v\S+)", module)
    assert pinned
    assert client.VersionApi(control_plane.api).get_code().git_version == pinned[1]


def test_who_does_not_know_its_authority_does_not_talk_to_it(control_plane):
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{control_plane.server}/readyz", trust_env=False)


def test_a_stranger_may_see_nothing(control_plane):
    assert ask(control_plane, "/api/v1/secrets").status_code == 403
    answer = ask(control_plane, "/api/v1/secrets", Authorization="Bearer guessed")
    assert answer.status_code == 401


def test_etcd_talks_to_nobody_without_a_certificate(control_plane):
    context = ssl.create_default_context(cafile=control_plane.authority.path)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"https://{HOST}:{control_plane.etcd_port}/health", verify=context)


def test_only_its_owner_reads_the_kubeconfig_and_the_keys(control_plane):
    folder = control_plane.kubeconfig.parent
    assert stat.S_IMODE(control_plane.kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "secrets").stat().st_mode) == 0o700
    keys = [*(folder / "secrets").glob("*.key"), *(folder / "secrets").glob("*.kubeconfig")]
    assert len(keys) >= 5
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_no_token_is_in_a_command_line_or_a_log(control_plane):
    user = yaml.safe_load(control_plane.kubeconfig.read_text())["users"][0]["user"]
    for program in control_plane.programs.values():
        assert user["token"] not in program.log.read_text(errors="replace")
    lines = [
        " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
    ]
    assert not any(user["token"] in line for line in lines)


def test_an_account_without_a_role_may_not_list_pods(control_plane, namespace):
    core: Any = client.CoreV1Api(control_plane.api)
    request = client.AuthenticationV1TokenRequest(
        spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600)
    )
    token = core.create_namespaced_service_account_token("default", namespace, request)
    bearer = {"Authorization": f"Bearer {token.status.token}"}
    answer = ask(control_plane, f"/api/v1/namespaces/{namespace}/pods", **bearer)
    assert answer.status_code == 403
    assert f"system:serviceaccount:{namespace}:default" in answer.json()["message"]


def test_controllers_make_pods_of_a_job_and_the_scheduler_looks_for_nodes(control_plane, namespace):
    jobs: Any = client.BatchV1Api(control_plane.api)
    core: Any = client.CoreV1Api(control_plane.api)
    template = pod("job")["spec"] | {"restartPolicy": "Never"}
    job = {"metadata": {"name": "job"}, "spec": {"template": {"spec": template}}}
    jobs.create_namespaced_job(namespace, job)

    def said():
        events = core.list_namespaced_event(namespace).items
        return [event.message for event in events if event.reason == "FailedScheduling"]

    assert "no nodes available" in wait(said)[0]


def test_who_asks_for_chips_tolerates_their_taint(control_plane, namespace):
    core: Any = client.CoreV1Api(control_plane.api)
    chips = {"resources": {"limits": {"google.com/tpu": "4"}}}
    made = core.create_namespaced_pod(namespace, pod("chips", **chips))
    tolerated = {(one.key, one.operator) for one in made.spec.tolerations}
    assert ("google.com/tpu", "Exists") in tolerated
    plain = core.create_namespaced_pod(namespace, pod("plain"))
    assert "google.com/tpu" not in {one.key for one in plain.spec.tolerations}


@pytest.mark.usefixtures("programs")
def test_the_operators_definitions_are_those_that_manifests_are_checked_against():
    definitions = {one["spec"]["names"]["kind"]: one for one in operator.definitions()}
    for kind in ("RayCluster", "RayJob", "RayService"):
        [stored] = [one for one in definitions[kind]["spec"]["versions"] if one["storage"]]
        file = REPOSITORY / f"tests/schemas/{kind}-{operator.VERSION}.json.gz"
        assert stored["schema"]["openAPIV3Schema"] == json.loads(gzip.decompress(file.read_bytes()))


def test_the_operator_is_the_module_that_is_pinned():
    module = (REPOSITORY / "tools/go/cluster/go.mod").read_text()
    assert f"github.com/ray-project/kuberay/ray-operator {operator.VERSION}" in module


def test_a_class_that_gke_would_refuse_is_refused(control_plane):
    custom = client.CustomObjectsApi(control_plane.api)
    wrong = {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": {"name": "wrong"},
        "spec": {"priorities": [{"tpu": {"type": "tpu-v6e-slice", "count": "four"}}]},
    }
    with pytest.raises(ApiException) as refused:
        custom.create_cluster_custom_object("cloud.google.com", "v1", "computeclasses", wrong)
    assert refused.value.status == 422
    assert "spec.priorities[0].tpu.count" in str(refused.value.body)


def test_what_was_made_survives_a_restart_of_the_api_server_and_nothing_the_end(programs, tmp_path):  # noqa: ARG001
    with ControlPlane(tmp_path, "10.245.0.0/24") as plane:
        core: Any = client.CoreV1Api(plane.api)
        core.create_namespaced_config_map("default", {"metadata": {"name": "kept"}})
        plane.restart_api_server()
        assert core.read_namespaced_config_map("kept", "default").metadata.name == "kept"
        for program in plane.programs.values():
            program.check()
    assert not running(str(tmp_path))


def test_free_ports_are_different_and_not_those_of_connections():
    ports = free_ports(50)
    assert len(set(ports)) == 50
    lowest = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
    assert max(ports) < int(lowest)
