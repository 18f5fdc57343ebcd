"""Deadlines of jobs, and what an older Ray operator does not know."""

import pytest

from tests.infra.config.stack import GKE, faults, on_gke, only, remarks


def test_a_deadline_leaves_time_to_run():
    line = only(faults(on_gke(workloads__1__deadline="1h")), "workloads[1].deadline")
    assert "1h leaves no time to run: start_deadline is 1h" in line
    assert faults(on_gke(workloads__1__deadline="61m")) == []
    lines = faults(on_gke(workloads__0__start_deadline="2d"))
    assert "1d leaves no time to run: start_deadline is 2d" in only(lines, "workloads[0].deadline")


@pytest.mark.parametrize("duration", ["1", "1w", "0s", "-1h", "1.5h", "1 h", 60, "366d", "1h30m"])
def test_a_duration_is_a_number_and_a_unit(duration):
    only(faults(on_gke(workloads__1__deadline=duration)), "workloads[1].deadline")


def test_an_older_kuberay_leaves_out_the_deadline_of_a_start():
    stack = on_gke(cluster__kuberay="1.5", workloads__1__start_deadline="2h")
    line = only([one for one in remarks(stack) if "deadline" in one], "workloads[1].start_deadline")
    assert "is left out: KubeRay 1.5" in line
    assert remarks(on_gke(workloads__1__start_deadline="2h")) == []


def test_an_older_kuberay_replaces_a_lost_host_alone():
    line = only(remarks(on_gke(cluster__kuberay="1.5")), "cluster.kuberay")
    assert "1.5 replaces a lost host of train without the other hosts; 1.6 replaces" in line
    one_host = on_gke(cluster__kuberay="1.5", slices=[GKE["slices"][1]], workloads=[])
    assert remarks(one_host) == []


@pytest.mark.parametrize("version", ["1.4", "1.1", "2.0", "1.5.1", "v1.5", 1.5])
def test_kuberay_is_new_enough_for_what_is_used_and_written_as_text(version):
    only(faults(on_gke(cluster__kuberay=version)), "cluster.kuberay")


@pytest.mark.parametrize("version", ["1.5", "1.6", "1.7", "1.10"])
def test_a_newer_kuberay_is_accepted(version):
    assert faults(on_gke(cluster__kuberay=version)) == []
