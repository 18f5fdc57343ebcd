"""What a pod asks for fits beside GKE's own share of each machine, by the published formulas."""

import pytest

from infra.tpu.catalog import MACHINES
from infra.tpu.node import allocatable

# vCPUs and GiB of the machine; what GKE keeps of both; GiB that Linux keeps, a 64th and 80 MiB; and
# what is left less 2 vCPUs and 4 GiB for the node's own pods, rounded down. Worked out by hand from
# "Plan GKE Standard node sizes" and the cluster autoscaler's reserved.go.
NODES = """
ct4p-hightpu-4t    240   407  0.67  14.90   6.44  237   381
ct5lp-hightpu-1t    24    48  0.13   4.52   0.83   21    38
ct5lp-hightpu-4t   112   192  0.35  10.60   3.08  109   174
ct5lp-hightpu-8t   224   384  0.63  14.44   6.08  221   359
ct5p-hightpu-4t    208   448  0.59  15.72   7.08  205   421
ct6e-standard-1t    44   176  0.18  10.28   2.83   41   158
ct6e-standard-4t   180   720  0.52  21.16  11.33  177   683
ct6e-standard-8t   180  1440  0.52  35.56  22.58  177  1377
tpu7x-standard-4t  224   960  0.63  25.96  15.08  221   914
tpu7x-ultranet-4t  224   960  0.63  25.96  15.08  221   914
"""
ROWS = [line.split() for line in NODES.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_pod_fits_on_its_node_with_the_nodes_own_pods(row):
    machine = MACHINES[row[0]]
    vcpus, memory, kept_cpus, kept_memory, kernel, cpus, memory_left = map(float, row[1:])
    assert (machine.vcpus, machine.memory_gib) == (vcpus, memory)
    assert allocatable(machine) == (cpus, memory_left)
    assert vcpus - kept_cpus - 2 >= cpus
    assert memory - kernel - kept_memory - 100 / 1024 - 4 >= memory_left


def test_every_machine_type_is_in_the_table():
    assert {row[0] for row in ROWS} == {*MACHINES}
