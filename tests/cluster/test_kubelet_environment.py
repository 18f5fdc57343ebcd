"""What a container's variables, arguments and downward facts are, against tables by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.cluster.kubelet.devices import plugin_variables, stand_in_variables
from tools.cluster.kubelet.environment import (
    MissingError,
    PodFacts,
    command_line,
    expand,
    references,
    variables,
)

POD = {
    "metadata": {
        "name": "train-0",
        "namespace": "research",
        "uid": "4b1c",
        "labels": {"ray.io/group": "train"},
    },
    "spec": {"nodeName": "gke-train-0-1", "serviceAccountName": "pretrain"},
}
FACTS = PodFacts(POD, "10.244.1.9", "127.0.0.1", {"cpu": "178", "memory": "684Gi"})
SOURCES = {
    ("ConfigMap", "settings"): {"steps": b"100", "rate": b"0.1"},
    ("Secret", "hub"): {"token": b"hf_x"},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$(A)$(B)", "12"),
        ("x-$(A)-y", "x-1-y"),
        ("$$(A)", "$(A)"),  # a dollar that is wanted as such
        ("$$$(A)", "$1"),
        ("$(C)", "$(C)"),  # unknown: left alone
        ("$A ${A} $(A", "$A ${A} $(A"),
        ("$", "$"),
        ("", ""),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text, expected):
    assert expand(text, {"A": "1", "B": "2"}) == expected


@given(st.text(alphabet="ab(){}. -"))
def test_a_text_without_dollars_stays(text):
    assert expand(text, {"a": "1", "b": "2"}) == text


def test_a_variable_sees_those_before_it_and_no_others():
    container = {
        "env": [
            {"name": "EARLY", "value": "$(LATE)"},
            {"name": "LATE", "value": "x"},
            {"name": "URL", "value": "$(LATE):8353"},
        ]
    }
    assert variables(container, FACTS, {}) == {"EARLY": "$(LATE)", "LATE": "x", "URL": "x:8353"}


def env(name, **source):
    return {"env": [{"name": name, "valueFrom": source}]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "train-0"),
        ("metadata.namespace", "research"),
        ("metadata.uid", "4b1c"),
        ("metadata.labels['ray.io/group']", "train"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "gke-train-0-1"),
        ("spec.serviceAccountName", "pretrain"),
        ("status.podIP", "10.244.1.9"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_a_pod_knows_its_own_facts(path, expected):
    assert variables(env("X", fieldRef={"fieldPath": path}), FACTS, {}) == {"X": expected}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"resource": "limits.cpu"}, "3"),  # 2500m, rounded up
        ({"resource": "limits.cpu", "divisor": "1m"}, "2500"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "2048"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "requests.memory"}, "0"),
    ],
)
def test_resources_are_counted_in_units_of_the_divisor(reference, expected):
    container = {
        "resources": {"limits": {"cpu": "2500m", "memory": "2Gi"}, "requests": {"cpu": "1"}},
        **env("X", resourceFieldRef=reference),
    }
    assert variables(container, FACTS, {}) == {"X": expected}


def test_without_a_limit_a_container_has_what_the_node_offers():
    container = env("X", resourceFieldRef={"resource": "limits.cpu"})
    assert variables(container, FACTS, {}) == {"X": "178"}


def test_values_come_from_config_maps_and_secrets():
    container = {
        "envFrom": [{"prefix": "RUN_", "configMapRef": {"name": "settings"}}],
        **env("TOKEN", secretKeyRef={"name": "hub", "key": "token"}),
    }
    assert set(references(container)) == set(SOURCES)
    assert variables(container, FACTS, SOURCES) == {
        "RUN_steps": "100",
        "RUN_rate": "0.1",
        "TOKEN": "hf_x",
    }


def test_what_is_optional_and_not_there_is_no_variable():
    container = {
        "envFrom": [{"secretRef": {"name": "none", "optional": True}}],
        **env("X", configMapKeyRef={"name": "settings", "key": "none", "optional": True}),
    }
    assert variables(container, FACTS, SOURCES) == {}


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"secretRef": {"name": "none"}}]}, 'secret "none" not found'),
        (env("X", configMapKeyRef={"name": "no", "key": "k"}), 'configmap "no" not found'),
        (
            env("X", secretKeyRef={"name": "hub", "key": "k"}),
            "couldn't find key k in Secret hub",
        ),
        (env("X", fieldRef={"fieldPath": "spec.x"}), "unsupported fieldPath: spec.x"),
    ],
)
def test_what_is_missing_is_named(container, message):
    with pytest.raises(MissingError, match=message):
        variables(container, FACTS, SOURCES)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, ["/manager"]),
        ({"args": ["--x", "$(A)"]}, ["/manager", "--x", "1"]),
        ({"command": ["sh", "-c"], "args": ["ls"]}, ["sh", "-c", "ls"]),
        ({"command": ["sh"]}, ["sh"]),
    ],
)
def test_a_command_replaces_the_entrypoint_of_the_image(container, expected):
    assert command_line(container, ["/manager"], {"A": "1"}) == expected


def tpu_host(machine, topology):
    return {
        "node.kubernetes.io/instance-type": machine,
        "cloud.google.com/gke-tpu-topology": topology,
    }


def asks_for(chips):
    return {"resources": {"limits": {"google.com/tpu": str(chips)}}}


@pytest.mark.parametrize(
    ("machine", "topology", "chips", "expected"),
    [
        ("ct6e-standard-4t", "4x4", 4, ("v6e-16", "2,2,1", None)),
        ("ct6e-standard-8t", "2x4", 8, ("v6e-8", "2,4,1", "0")),
        ("ct5p-hightpu-4t", "2x2x2", 4, ("v5p-16", "2,2,1", None)),  # TensorCores, not chips
        ("ct6e-standard-1t", "1x1", 1, ("v6e-1", "1,1,1", "0")),
    ],
)
def test_a_container_with_chips_knows_its_slice(machine, topology, chips, expected):
    found = plugin_variables(asks_for(chips), tpu_host(machine, topology))
    assert found["TPU_TOPOLOGY"] == topology
    names = ("TPU_ACCELERATOR_TYPE", "TPU_CHIPS_PER_HOST_BOUNDS", "TPU_WORKER_ID")
    assert tuple(found.get(name) for name in names) == expected


@pytest.mark.parametrize(
    ("machine", "topology", "devices"),
    [("ct6e-standard-4t", "4x4", 4), ("tpu7x-standard-4t", "2x2x1", 8)],
)
def test_chips_are_as_many_devices_of_the_cpu_as_jax_would_see(machine, topology, devices):
    own = {"JAX_PLATFORMS": "tpu,cpu", "XLA_FLAGS": "--xla_dump_to=/x"}
    assert stand_in_variables(asks_for(4), tpu_host(machine, topology), own) == {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_dump_to=/x --xla_force_host_platform_device_count={devices}",
    }


def test_without_chips_nothing_is_said_of_them():
    assert plugin_variables({}, tpu_host("ct6e-standard-4t", "4x4")) == {}
    assert stand_in_variables({}, {}, {"JAX_PLATFORMS": "tpu"}) == {}
