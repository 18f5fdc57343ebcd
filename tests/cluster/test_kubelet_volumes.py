"""What containers of real pods see: files, volumes, names, tokens, and each other."""

from pathlib import Path

import pytest

from tests.cluster.pods import NAMESPACE, is_running, python, sh
from tests.cluster.waiting import wait

EMPTY = [{"name": "work", "emptyDir": {}}]
WORK = [{"name": "work", "mountPath": "/work-of-the-pod/deep"}]


def output(machine, name, *containers, **spec):
    pod = machine.end_of(machine.pod(name, *containers, **spec))
    assert pod.status.phase == "Succeeded", machine.log(name)
    return machine.log(name)


def test_containers_of_a_pod_share_volumes_memory_and_loopback_and_nothing_else(machine):
    one = sh(
        "echo a > /work-of-the-pod/deep/x; echo b > /dev/shm/x; echo c > /tmp/x; echo d > /etc/x;"
        "exec sleep 600",
        volumeMounts=WORK,
    )
    other = sh(
        "until test -e /dev/shm/x; do sleep 0.1; done; sleep 0.2; cat /work-of-the-pod/deep/x"
        " /dev/shm/x; ls /tmp/x /etc/x; hostname; exit 0",
        volumeMounts=WORK,
    )
    read = machine.pod("shares", one, other, volumes=EMPTY)
    statuses = wait(lambda: read().status.container_statuses)
    wait(lambda: read().status.container_statuses[1].state.terminated)
    lines = machine.log("shares", "main-2").splitlines()
    assert [line for line in lines if "cannot access" not in line] == ["a", "b", "shares"]
    assert len(statuses) == 2


def test_what_a_container_writes_does_not_touch_this_machine(machine):
    output(machine, "writes", sh("echo x > /written-by-a-pod; rm /etc/passwd; mkdir /srv/x"))
    assert not Path("/written-by-a-pod").exists()
    assert not Path("/srv/x").exists()
    assert Path("/etc/passwd").exists()


def test_the_code_of_an_image_cannot_be_changed(machine):
    found = output(
        machine,
        "code",
        python(
            "import os, workloads; print(workloads.__path__[0])\n"
            "try: os.open(os.path.join(workloads.__path__[0], 'x'), os.O_CREAT)\n"
            "except OSError as error: print(error.strerror)"
        ),
    )
    assert found == "/home/ray/raytpu/workloads\nRead-only file system\n"


def test_config_maps_and_secrets_are_files_and_variables(machine):
    core = machine.core
    core.create_namespaced_config_map(
        NAMESPACE, {"metadata": {"name": "settings"}, "data": {"steps": "100", "rate": "0.1"}}
    )
    core.create_namespaced_secret(
        NAMESPACE, {"metadata": {"name": "hub"}, "stringData": {"token": "hf_x"}}
    )
    projected = {
        "sources": [
            {"configMap": {"name": "settings", "items": [{"key": "rate", "path": "a/rate"}]}},
            {"secret": {"name": "hub"}},
            {
                "downwardAPI": {
                    "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
                }
            },
        ],
        "defaultMode": 0o440,
    }
    volume = {"name": "v", "projected": projected}
    mounts = [
        {"name": "v", "mountPath": "/all", "readOnly": True},
        {"name": "v", "mountPath": "/only/token", "subPath": "token"},
    ]
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}]
    script = "cat /all/a/rate /all/token /only/token; echo; cat /all/labels; echo; echo $TOKEN;"
    script += "stat -c %a /all/token; touch /all/x || echo read-only"
    container = sh(script, volumeMounts=mounts, env=env)
    lines = output(machine, "files", container, volumes=[volume]).splitlines()
    assert lines[0:4] == ["0.1hf_xhf_x", 'app="files"', "hf_x", "440"]
    assert lines[-1] == "read-only"


def test_a_pod_waits_for_the_config_map_that_it_mounts(machine):
    volume = {"name": "v", "configMap": {"name": "later"}}
    mounts = [{"name": "v", "mountPath": "/v"}]
    read = machine.pod("patient", sh("cat /v/x", volumeMounts=mounts), volumes=[volume])
    wait(lambda: ("FailedMount", 'configmap "later" not found') in machine.events("patient"))
    assert read().status.phase == "Pending"
    machine.core.create_namespaced_config_map(
        NAMESPACE, {"metadata": {"name": "later"}, "data": {"x": "now"}}
    )
    machine.end_of(read)
    assert machine.log("patient") == "now"


ASKS_WHO_IT_IS = """
import json, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
request = urllib.request.Request(
    "https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews",
    b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}',
    {"Authorization": "Bearer " + open(folder + "/token").read(),
     "Content-Type": "application/json"},
)
context = ssl.create_default_context(cafile=folder + "/ca.crt")
user = json.load(urllib.request.urlopen(request, context=context))["status"]["userInfo"]
print(user["username"], *user["extra"]["authentication.kubernetes.io/pod-name"])
"""


def test_a_pods_token_is_its_own_and_the_api_server_takes_it(machine):
    found = output(machine, "who", python(ASKS_WHO_IT_IS))
    assert found == "system:serviceaccount:default:default who\n"


def test_pods_of_a_subdomain_find_each_other_by_name(machine):
    machine.core.create_namespaced_service(
        NAMESPACE,
        {
            "metadata": {"name": "train-headless"},
            "spec": {
                "clusterIP": "None",
                "selector": {"app": "host-0"},
                "publishNotReadyAddresses": True,
            },
        },
    )
    read = machine.pod("host-0", sh("exec sleep 600"), hostname="a-0", subdomain="train-headless")
    is_running(read)
    script = "until getent hosts a-0.train-headless; do sleep 0.5; done"
    found = output(
        machine, "host-1", sh(f"{script}; hostname"), hostname="a-1", subdomain="train-headless"
    )
    assert found.split()[0] == read().status.pod_ip
    assert found.split()[-1] == "a-1"


@pytest.mark.parametrize("medium", ["", "Memory"])
def test_an_empty_folder_is_on_disk_or_in_memory(machine, medium):
    volume = {"name": "v", "emptyDir": {"medium": medium}}
    script = "stat -f -c %T /v"
    container = sh(script, volumeMounts=[{"name": "v", "mountPath": "/v"}])
    found = output(machine, f"empty{medium.lower()}", container, volumes=[volume])
    assert (found.strip() == "tmpfs") == (medium == "Memory")
