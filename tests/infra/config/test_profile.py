"""Steps of a run that are to be traced."""

from tests.infra.config.stack import changed, faults, only


def test_steps_that_the_run_does_not_have_are_refused():
    stack = changed(workloads__1__steps=30, workloads__1__profile={"first_step": 29})
    line = only(faults(stack), "workloads[1].profile")
    assert "31 is the last step to be traced, and steps is 30; trace earlier or fewer" in line
    stack = changed(workloads__1__steps=30, workloads__1__profile={"first_step": 28})
    assert faults(stack) == []
