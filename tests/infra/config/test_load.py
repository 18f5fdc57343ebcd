"""What a stack file says becomes a StackConfig, or all of its faults in the user's words."""

import pytest

from infra.config import ClusterSpec, DataSpec, Folder, LocalCluster, ServeSpec, TrainSpec, load
from infra.errors import ConfigError
from tests.infra.config.stack import SOUND, changed, faults, pulumi, read
from workloads.settings import DataSettings, ServeSettings, TrainSettings


def test_a_sound_stack_is_resolved():
    config = read(SOUND)
    assert (config.stack, config.environment, config.cluster.mode) == ("some", "local", "local")
    assert [tpu.pod_type for tpu in config.slices] == ["v6e-16", "v6e-4"]
    assert [type(one) for one in config.workloads] == [DataSpec, TrainSpec, ServeSpec]
    assert config.slice("chat").hosts == 1
    assert config.workload("pretrain") is config.workloads[1]
    assert isinstance(config.cluster, LocalCluster)
    assert config.cluster.folder("local") == ".raytpu/local/storage"
    assert config.remarks == ()


def handed_on():
    """Settings of the sound stack's workloads."""
    workloads = read(SOUND).workloads
    return [one.settings() for one in workloads if not isinstance(one, ClusterSpec)]


def test_a_workload_hands_on_its_settings_and_nothing_of_the_stack():
    data, train, serve = handed_on()
    assert data == DataSettings(vocab_size=2048, sequence_length=128)
    assert train == TrainSettings.model_validate(
        {"mesh": {"data": 16}, "steps": 300, "global_batch": 32}
    )
    assert serve == ServeSettings.model_validate(
        {"mesh": {"tensor": 4}, "max_sequence_length": 128}
    )
    assert type(train) is TrainSettings


def test_settings_survive_the_way_to_the_entrypoint():
    for settings in handed_on():
        assert type(settings).model_validate_json(settings.model_dump_json()) == settings


def test_data_and_models_may_come_from_elsewhere():
    config = read(
        changed(
            workloads__1__data={"path": "gs://bucket/tokens"},
            workloads__2__model={"path": "models/qwen3"},
        )
    )
    origins = {"data": config.workload("pretrain"), "model": config.workload("chat")}
    assert [getattr(workload, key) for key, workload in origins.items()] == [
        Folder(path="gs://bucket/tokens"),
        Folder(path="models/qwen3"),
    ]


def test_storage_and_ports_may_be_chosen():
    cluster = {"mode": "local", "storage": "/big/disk", "serve_port": 8000}
    config = read(changed(cluster=cluster))
    assert isinstance(config.cluster, LocalCluster)
    assert (config.cluster.folder("local"), config.cluster.serve_port) == ("/big/disk", 8000)
    assert config.cluster.dashboard_port is None


def test_other_namespaces_are_left_alone():
    config = {**pulumi(SOUND), "gcp:project": "p", "raytpux:foo": "1"}
    assert load(config, stack="local").environment == "local"


def test_ten_faults_are_ten_lines():
    stack = changed(
        environment="Local",
        cluster={"mode": "local", "serve_prot": 8000},
        slices__0__topology="4x5",
        slices__1__machine_type="ct6e-standart-4t",
        slices__2=7,
        workloads__0__vocab_size=10,
        workloads__1__steps="many",
        workloads__1__mesh={"data": 16, "expert": 2},
        workloads__2__kind="server",
        sclices="[]",
    )
    assert [line.partition(": ")[0] for line in faults(stack)] == [
        "raytpu:sclices",
        "raytpu:environment",
        "raytpu:cluster.serve_prot",
        "raytpu:slices[0].topology",
        "raytpu:slices[1].machine_type",
        "raytpu:slices[2]",
        "raytpu:workloads[0].vocab_size",
        "raytpu:workloads[1].mesh.expert",
        "raytpu:workloads[1].steps",
        "raytpu:workloads[2].kind",
    ]


def test_all_faults_of_one_entry_are_told():
    stack = changed(
        slices__0__name="Train",
        slices__0__count=0,
        slices__0__topology="5x5",
        workloads__1__name="Pretrain",
        workloads__1__steps=0,
        workloads__1__dtype="int8",
        workloads__2__model={"path": "models/other"},
    )
    assert sorted(line.partition(": ")[0] for line in faults(stack)) == [
        "raytpu:slices[0].count",
        "raytpu:slices[0].name",
        "raytpu:slices[0].topology",
        "raytpu:workloads[1].dtype",
        "raytpu:workloads[1].name",
        "raytpu:workloads[1].steps",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"workloads__1__sclice": "x"},
            "raytpu:workloads[1].sclice: there is no such key; did you mean slice?",
        ),
        (
            {"workloads__1__mesh": {"data": 16, "tenser": 1}},
            "raytpu:workloads[1].mesh.tenser: there is no such key; did you mean tensor?",
        ),
        (
            {"slices__0__ladder": []},
            (
                "raytpu:slices[0].ladder: there is no such key; the keys are machine_type, "
                "topology, capacity, name, count, fallback, provision, boot_disk_gib, keep_nodes"
            ),
        ),
        ({"slices__0__count": 0}, "raytpu:slices[0].count: 0 is too small; use 1 or more"),
        (
            {"slices__0__topology": 16},
            "raytpu:slices[0].topology: 16 is not text; write text",
        ),
        (
            {"slices__0__count": "two"},
            "raytpu:slices[0].count: 'two' is not a whole number; write a whole number",
        ),
        (
            {"slices__0__count": True},
            "raytpu:slices[0].count: true is not a whole number; write a whole number",
        ),
        ({"slices__0__topology": None}, "raytpu:slices[0].topology: is empty; write text"),
        ({"slices": ""}, "raytpu:slices: is empty; begin each entry with '- name:'"),
        (
            {"slices": {"name": "train"}},
            "raytpu:slices: a mapping is not a list; begin each entry with '- name:'",
        ),
        (
            {"slices__0": "train"},
            (
                "raytpu:slices[0]: 'train' is not a slice; "
                "write a mapping with machine_type, topology, name"
            ),
        ),
        ({"cluster": "local"}, "raytpu:cluster: 'local' is not a mapping; write a mapping"),
        (
            {"cluster": {"mode": "loacl"}},
            (
                "raytpu:cluster.mode: 'loacl' is not one of the choices; "
                "use 'local', 'gke', 'autopilot' or 'existing'"
            ),
        ),
        (
            {"cluster": {"mode": "local", "serve_port": 70000}},
            "raytpu:cluster.serve_port: 70000 is too large; use 65535 or less",
        ),
        (
            {"cluster": {"mode": "local", "serve_port": 8000, "dashboard_port": 8000}},
            "raytpu:cluster.dashboard_port: 8000 is also serve_port; choose another port",
        ),
        (
            {"cluster": {"mode": "local", "storage": "gs://bucket"}},
            (
                "raytpu:cluster.storage: 'gs://bucket' is no folder of this machine; "
                "write a path, or leave it out"
            ),
        ),
        (
            {"workloads__0__kind": "date"},
            (
                "raytpu:workloads[0].kind: 'date' is not one of the choices; "
                "use 'data', 'train', 'serve', 'infer', 'spmd', 'check' or 'cluster'"
            ),
        ),
        (
            {"workloads__1__data": {"path": "s3://bucket"}},
            (
                "raytpu:workloads[1].data.path: 's3://bucket' is no place that can be read; "
                "write a folder or a gs:// address"
            ),
        ),
        (
            {"workloads__1__data": {"folder": "x"}},
            "raytpu:workloads[1].data.path: is missing; add path",
        ),
        (
            {"workloads__1__data": 5},
            "raytpu:workloads[1].data: 5 is not text; write text",
        ),
        (
            {"workloads__0__sources": "a.txt"},
            "raytpu:workloads[0].sources: 'a.txt' is not a list; write a list",
        ),
        (
            {"workloads__0__held_out_fraction": 1},
            "raytpu:workloads[0].held_out_fraction: 1 is too large; use less than 1.0",
        ),
    ],
)
def test_a_fault_says_where_what_and_the_way_out(changes, line):
    assert line in faults(changed(**changes))


def test_what_must_be_there_is_missed():
    lines = faults({"slices": [{}], "workloads": [{}, {"name": "a", "kind": "serve"}]})
    assert lines == [
        "raytpu:environment: is missing; add environment",
        "raytpu:cluster: is missing; add cluster",
        "raytpu:slices[0].machine_type: is missing; add machine_type",
        "raytpu:slices[0].topology: is missing; add topology",
        "raytpu:slices[0].name: is missing; add name",
        "raytpu:workloads[0].name: is missing; add name",
        "raytpu:workloads[0].kind: is missing; add kind",
        "raytpu:workloads[1].slice: is missing; add slice",
        "raytpu:workloads[1].model: is missing; add model",
    ]


@pytest.mark.parametrize("name", ["experiment-0353b325-c892", "a", "x" * 35, "v6e-4x4"])
def test_names_that_kuberay_can_use_are_accepted(name):
    assert faults(changed(workloads__2__name=name, slices__1__name="chat")) == []


@pytest.mark.parametrize(
    "name",
    ["x" * 36, "x" * 48, "x" * 60, "4x4", "-a", "a-", "Train", "a_b", "a.b", "\u00e4", "a\n", ""],
)
def test_names_that_break_host_names_or_kubernetes_are_refused(name):
    for path in ("workloads__2__name", "slices__1__name", "environment"):
        where = f"raytpu:{path.replace('__', '[', 1).replace('__', '].')}: "
        assert any(line.startswith(where) for line in faults(changed(**{path: name})))


def test_text_that_is_nested_too_deep_for_json_is_text():
    with pytest.raises(ConfigError, match="raytpu:slices: "):
        load({**pulumi(SOUND), "raytpu:slices": "[" * 100_000}, stack="local")
