"""One's own program and the slice check on Kubernetes: jobs on whole slices, with rights."""

import json
import shlex

import pytest

from infra.gke.identity import LOOK_UP, READ, WRITE, bucket_roles
from infra.local.stack import code_digest
from infra.ray.waits import must_finish
from policies import runs
from tests.infra.ray.stacks import TRAIN, cluster_of, gke, made

SLICE = {"name": "own", "machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}
TRAINED = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
SPMD = {
    "name": "mine",
    "kind": "spmd",
    "slice": "own",
    "program": "team.train:main",
    "args": ["--what", "it's $HOME"],
    "reads": ["gs://team-corpora/english"],
}
CHECK = {"name": "look", "kind": "check", "slice": "own"}


def stack(*workloads):
    return gke([SLICE, TRAINED], [*workloads, TRAIN])


def words(config, name):
    return shlex.split(made(config)[f"RayJob/{name}"].manifest["spec"]["entrypoint"])


@pytest.mark.parametrize("workload", [SPMD, CHECK])
def test_each_is_a_job_on_all_hosts_of_all_copies(workload):
    one = made(stack(workload))[f"RayJob/{workload['name']}"]
    [group] = cluster_of(one.manifest)["workerGroupSpecs"]
    assert (group["groupName"], group["replicas"], group["numOfHosts"]) == ("own", 2, 4)
    assert one.manifest["spec"]["ttlSecondsAfterFinished"] == 0  # chips cost
    assert one.replace_on == ("spec",)


def test_a_program_is_told_its_words_as_they_were_written():
    found = words(stack(SPMD), "mine")
    assert found[:3] == ["python", "-m", "workloads.spmd.main"]
    arguments = dict(zip(found[3::2], found[4::2], strict=True))
    assert json.loads(arguments["--settings"])["args"] == ["--what", "it's $HOME"]
    assert "$" not in arguments["--settings"]
    assert json.loads(arguments["--slice"])["slices"] == 2
    assert arguments["--output"] == "gs://acme-ml-raytpu-dev-data/mine"


def test_how_often_a_program_saves_is_said_where_the_policies_look():
    annotations = [
        made(stack({**SPMD, **more}))["RayJob/mine"].manifest["metadata"]["annotations"]
        for more in ({"checkpoint_every": 50}, {})
    ]
    assert [one.get(runs.CHECKPOINT_STEPS) for one in annotations] == ["50", None]


def test_a_check_is_a_job_and_may_come_before_any_other():
    assert words(stack(CHECK), "look")[:3] == ["python", "-m", "workloads.check.main"]
    plain = words(stack(), "pretrain")
    checked = words(gke([SLICE, TRAINED], [{**TRAIN, "slice_check": True}]), "pretrain")
    assert checked[:4] == ["python", "-m", "workloads.check.before", "workloads.train.main"]
    assert checked[4:] == plain[3:]


def test_a_job_that_is_read_by_nobody_need_only_start():
    config = gke([SLICE, TRAINED], [{**SPMD, "wait_for": "finish"}, {**CHECK, "slice": "train"}])
    assert must_finish(config, config.workload("mine"))
    assert not must_finish(config, config.workload("look"))


def test_a_program_may_read_what_it_names_and_keep_its_own_and_a_check_may_only_write():
    config = stack(SPMD)
    assert bucket_roles(config, config.workload("mine")) == {
        "acme-ml-raytpu-dev-data": {LOOK_UP, WRITE},
        "acme-ml-raytpu-dev-cache": {WRITE},
        "team-corpora": {READ},
    }
    config = stack(CHECK)
    assert bucket_roles(config, config.workload("look")) == {"acme-ml-raytpu-dev-data": {WRITE}}


def test_the_checks_code_is_that_of_what_asks_for_it_alone():
    plain, checked = (
        gke([TRAINED], [{**TRAIN, "slice_check": asked}]).workload("pretrain")
        for asked in (False, True)
    )
    assert code_digest(plain) != code_digest(checked)
