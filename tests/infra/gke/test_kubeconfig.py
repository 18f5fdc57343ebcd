"""A cluster of others is reached by the user's own file: what is wrong with it is said at once."""

import pytest
import yaml

from infra.config import ExistingCluster
from infra.gke.kubeconfig import faults

STORAGE = "gs://bucket/there"
LAB = {"name": "lab", "context": {"cluster": "lab", "user": "lab"}}


def cluster(**given):
    return ExistingCluster(mode="existing", storage=STORAGE, **given)


def told(cluster, **environ):
    return [str(problem) for problem in faults(cluster, environ)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump({"contexts": [LAB], "current-context": "lab"}))
    return path


def test_a_file_with_a_context_is_sound(file):
    assert told(cluster(kubeconfig=str(file))) == []
    assert told(cluster(), KUBECONFIG=str(file)) == []
    assert told(cluster(context="lab"), KUBECONFIG=f"/nowhere:{file}") == []


def test_a_missing_file_is_named_with_the_way_out():
    fix = "write the path of a kubeconfig there, or set KUBECONFIG"
    where = "raytpu:cluster.kubeconfig: there is no file"
    assert told(cluster(kubeconfig="/nowhere")) == [f"{where} /nowhere; {fix}"]
    assert told(cluster(), KUBECONFIG="/a:/b") == [f"{where} /a, /b; {fix}"]


def test_a_pod_needs_no_file(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert told(cluster(), KUBERNETES_SERVICE_HOST="10.0.0.1") == []
    assert len(told(cluster())) == 1


def test_a_context_that_is_not_there_is_named_with_those_that_are(file):
    [line] = told(cluster(kubeconfig=str(file), context="prod"))
    assert line == f"raytpu:cluster.context: {file} has no context 'prod'; use one of lab"


@pytest.mark.parametrize("text", ["", "{", "[1]", "contexts: []", "contexts:\n"])
def test_a_file_without_any_context_is_no_way_in(tmp_path, text):
    (tmp_path / "config").write_text(text)
    [line] = told(cluster(), KUBECONFIG=str(tmp_path / "config"))
    assert line.endswith("config has no current context; write one into it")
