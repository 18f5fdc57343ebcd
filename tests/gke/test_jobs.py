"""Jobs on the real engine: one that fails stops what reads of it, and kinds may come late."""

import pytest

from tests.gke.journey import prepare
from tests.standin import kubernetes

FAILED = {
    "jobDeploymentStatus": "Failed",
    "jobStatus": "FAILED",
    "reason": "AppFailed",
    "message": "no such bucket",
    "endTime": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def existing(tmp_path):
    stack = prepare("existing", tmp_path)
    with stack.cloud:
        yield stack


def test_what_reads_of_a_failed_job_is_not_made_until_the_job_is_replaced(existing, monkeypatch):
    with monkeypatch.context() as patched:
        stages = existing.cloud.kubernetes.stages
        patched.setitem(stages, "RayJob", [*stages["RayJob"][:2], FAILED])
        done = existing.up()
        assert done.code != 0
        assert "RayJob/corpus ended as Failed (AppFailed; no such bucket)" in done.output
        (corpus,) = existing.cloud.kubernetes.objects("RayJob")
        assert corpus["metadata"]["name"] == "corpus"
        assert existing.up().code != 0  # a job does not come back by itself
    told = done.output.partition("`pulumi up --replace '")[2].partition("'")[0]
    mended = existing.pulumi("up", "--yes", "--skip-preview", "--replace", told)
    assert mended.code == 0, mended.output
    jobs = existing.cloud.kubernetes.objects("RayJob")
    assert {job["metadata"]["name"] for job in jobs} == {"corpus", "pretrain"}


def test_a_kind_that_an_add_on_brings_late_is_waited_for(existing, monkeypatch):
    api = existing.cloud.kubernetes
    create, tried = api.create, []

    def late(made):
        if made.args["kind"] == "RayJob" and len(tried) < 3:
            tried.append(made.args["metadata"]["name"])
            raise kubernetes.RefusedError('no matches for kind "RayJob" in version "ray.io/v1"')
        create(made)

    monkeypatch.setattr(api, "create", late)
    done = existing.up()
    assert done.code == 0, done.output
    assert tried == ["corpus"] * 3
