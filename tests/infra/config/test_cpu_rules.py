"""Heads and data jobs fit the nodes without TPU, so nothing waits for a node that never comes."""

import pytest

from tests.infra.config.stack import faults, on_autopilot, on_gke, only


@pytest.mark.parametrize(
    "machine_type", ["n2-standard-2", "n2-standard-0", "n2-highcpu-4", "e2-standard-2"]
)
def test_a_node_that_holds_no_head_is_refused(machine_type):
    stack = on_gke(cluster__cpu_pool={"machine_type": machine_type})
    line = only(faults(stack), "cluster.cpu_pool.machine_type")
    assert f"'{machine_type}' is too small for the head of a Ray cluster" in line


@pytest.mark.parametrize(
    "machine_type", ["n2-standard-4", "n2-standard-8", "c4a-highmem-4", "c3-highcpu-22"]
)
def test_a_node_that_may_hold_one_is_not(machine_type):
    assert faults(on_gke(cluster__cpu_pool={"machine_type": machine_type})) == []


@pytest.mark.parametrize(
    ("pool", "most"),
    [
        # Two pods of 3 CPUs and 12 GiB on 8 CPUs and 32 GiB; four on 16 and 64, of which Linux and
        # GKE keep 6.6 GiB; a head takes the place of one.
        ({}, 2 * 4 - 1),
        ({"max_nodes": 10}, 2 * 10 - 1),
        ({"machine_type": "n2-standard-16"}, 4 * 4 - 1),
        ({"machine_type": "n2-highmem-16"}, 5 * 4 - 1),
    ],
)
def test_a_data_job_has_no_more_workers_than_the_pool_holds(pool, most):
    assert faults(on_gke(cluster__cpu_pool=pool, workloads__0__workers=most)) == []
    stack = on_gke(cluster__cpu_pool=pool, workloads__0__workers=most + 1)
    line = only(faults(stack), "workloads[0].workers")
    assert f"use {most} or fewer, or a larger raytpu:cluster.cpu_pool.max_nodes" in line


def test_autopilot_makes_as_many_nodes_as_it_takes():
    assert faults(on_autopilot(workloads__0__workers=100)) == []
