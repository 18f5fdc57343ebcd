"""One's own program, and the slice check, as a stack declares them."""

import pytest

from infra.config import CheckSpec, SpmdSpec, TrainSpec
from tests.infra.config.stack import changed, faults, on_gke, only, read, remarks

SLICE = {"name": "own", "machine_type": "ct6e-standard-4t", "topology": "4x4"}
SPMD = {"name": "mine", "kind": "spmd", "slice": "own", "program": "team.train:main"}
CHECK = {"name": "look", "kind": "check", "slice": "own"}


def local(kind=SPMD, **changes):
    return changed(slices__2=SLICE, workloads__3={**kind, **changes})


def gke(kind=SPMD, **changes):
    return on_gke(slices__2=SLICE, workloads__3={**kind, **changes})


@pytest.mark.parametrize("program", ["team.train:main", "team.train", "train.py", "/app/src/a.py"])
def test_a_function_a_module_and_a_file_are_programs(program):
    stack = read(local(program=program, args=["--steps", "3"], env={"XLA_FLAGS": "--a=b"}))
    mine = stack.workload("mine")
    assert isinstance(mine, SpmdSpec)
    assert mine.settings().program == program
    assert faults(gke(program=program)) == []


def test_a_check_takes_its_defaults_and_every_kind_of_job_may_ask_for_one():
    stack = read(local(CHECK))
    assert isinstance(stack.workload("look"), CheckSpec)
    asked = changed()
    asked["workloads"][1]["slice_check"] = True
    pretrain = read(asked).workload("pretrain")
    assert isinstance(pretrain, TrainSpec)
    assert pretrain.slice_check
    assert faults(gke(slice_check=True)) == []


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"slice": "none"}, "slice", "'none' is no slice; use 'train' or 'chat' or 'own'"),
        ({"program": "a b"}, "program", "'a b' names no program; write package.module:function"),
        ({"program": "a:"}, "program", "'a:' names no program"),
        ({"program": "a/b"}, "program", "'a/b' names no program"),
        ({"env": {"A-B": "1"}}, "env.A-B", "'A-B' is no name of a variable"),
        ({"env": {"WANDB_API_KEY": "abc"}}, "env.WANDB_API_KEY", "seems to be a secret"),
        ({"env": {"TPU_WORKER_ID": "0"}}, "env.TPU_WORKER_ID", "is set for each host, by GKE"),
        ({"args": ["a", 3]}, "args[1]", "3 is not text"),
        ({"reads": ["data"]}, "reads[0]", "is no bucket that all hosts can reach"),
        ({"max_failures": -1}, "max_failures", "use 0 or more"),
        ({"progam": "x"}, "progam", "did you mean program?"),
    ],
)
def test_what_is_wrong_with_a_program_is_named_by_its_place(changes, where, words):
    line = only(faults(local(**changes)), f"workloads[3].{where}")
    assert words in line
    assert "abc" not in line


def test_the_value_of_what_may_be_a_secret_is_not_told():
    (line,) = faults(local(env={"HF_TOKEN": "hf_value"}))
    assert "hf_value" not in line


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"sizes_mib": []}, "sizes_mib", "is empty"),
        ({"sizes_mib": [8, 0]}, "sizes_mib[1]", "use 1 or more"),
        ({"slow_factor": 1}, "slow_factor", "use more than 1"),
    ],
)
def test_what_is_wrong_with_a_check_is_named_by_its_place(changes, where, words):
    assert words in only(faults(local(CHECK, **changes)), f"workloads[3].{where}")


def test_code_is_brought_to_local_hosts_and_built_into_the_image_for_others():
    assert faults(local(code="src")) == []
    line = only(faults(gke(code="src")), "workloads[3].code")
    assert (
        "'src' is on this machine, which no pod can read; build it into raytpu:images.ray" in line
    )


def test_a_check_before_a_job_knows_no_second_choice():
    fallback = [{"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}]
    stack = on_gke(slices__0__fallback=fallback, workloads__1__slice_check=True)
    [line] = [line for line in faults(stack) if "workloads[1].slice_check" in line]
    assert "looks at 4x4 on ct6e-standard-4t alone, and slice 'train' has a fallback" in line


def test_a_check_before_a_job_waits_for_all_slices():
    stack = on_gke(slices__0__count=2, workloads__1__min_slices=1, workloads__1__slice_check=True)
    [line] = [line for line in faults(stack) if "slice_check" in line]
    assert line.startswith("raytpu:workloads[1].min_slices: 1 would do for the run")


def test_both_ask_for_one_shape_and_a_slice_of_their_own_on_gke():
    for kind in (SPMD, CHECK):
        shared = only(faults(gke(kind, slice="train")), "workloads[3].slice")
        assert "is also the slice of raytpu:workloads[1]" in shared
    fallback = [{"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}]
    stack = on_gke(slices__2={**SLICE, "fallback": fallback}, workloads__3=SPMD)
    (line,) = [line for line in faults(stack) if "workloads[3].slice" in line]
    assert "has a fallback, and a workload of kind spmd asks for 4x4" in line


def test_locally_several_jobs_take_a_slice_in_turn_but_not_one_that_serves():
    assert faults(local(CHECK, slice="train")) == []
    held = only(faults(local(slice="chat")), "workloads[3].slice")
    assert "is held by raytpu:workloads[2], which serves from all copies of it" in held


def test_slices_of_one_host_may_be_several():
    """Ray Train cannot span them; what reserves hosts by itself can."""
    singles = {"name": "own", "machine_type": "ct6e-standard-4t", "topology": "2x2", "count": 3}
    trained = on_gke(slices__2=singles, workloads__1__slice="own")
    assert "is 3 slices of one host each" in "\n".join(faults(trained))
    assert faults(on_gke(slices__2=singles, workloads__3=SPMD)) == []


def test_a_run_that_flex_start_ends_goes_on_from_what_the_program_kept():
    flex = {**SLICE, "capacity": [{"flex_start": {"max_run_duration": "2h"}}]}
    stack = on_gke(slices__2=flex, workloads__3=SPMD)
    (line,) = [line for line in remarks(stack) if "workloads[3].deadline" in line]
    assert "it then goes on from what the program kept" in line
