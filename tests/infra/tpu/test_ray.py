"""The model against the installed Ray, over every topology that GKE's rule allows."""

from itertools import combinations_with_replacement
from math import prod

import pytest
from ray._private.accelerators import tpu as ray_tpu
from ray.train.v2.api.config import ScalingConfig
from ray.util.tpu import (
    get_tpu_num_slices_for_workers,
    get_tpu_version_from_type,
    get_tpu_worker_resources,
)

from infra.errors import ConfigError
from infra.tpu.catalog import GENERATIONS, MACHINES, RAY_WHOLE_HOST_2D
from infra.tpu.slice import SliceSpec, TpuSlice
from infra.tpu.topology import topologies

# GKE's rule, written a second time: it must not be taken from the code under test.
TWO_D = ["1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"]
SMALL_3D = ["2x2x1", "2x2x2", "2x2x4", "2x4x4"]
LARGEST_CHIPS = {"v4": 4096, "v5p": 8960, "tpu7x": 9216}
ONE_VM_ONLY = {1: "1x1", 8: "2x4"}


def gke_topologies(machine):
    if machine.generation not in LARGEST_CHIPS:
        one_vm = ONE_VM_ONLY.get(machine.chips)
        return [one_vm] if one_vm else [shape for shape in TWO_D if shape != "1x1"]
    most = LARGEST_CHIPS[machine.generation]
    edges = range(4, 256 + 1, 4)
    custom = (sizes for sizes in combinations_with_replacement(edges, 3) if prod(sizes) <= most)
    return SMALL_3D + ["x".join(map(str, sizes)) for sizes in custom]


def resolve(machine, topology, count=1):
    spec = SliceSpec(name="s", machine_type=machine, topology=topology, count=count)
    return TpuSlice.resolve(spec)


def accepted(machine, topology):
    try:
        return resolve(machine, topology)
    except ConfigError:
        return None


LEGAL = [
    pytest.param(machine.name, shape, id=f"{machine.name}-{shape}")
    for machine in MACHINES.values()
    for shape in topologies(machine)
]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_a_slice_is_accepted_exactly_if_gke_makes_it_and_rays_table_has_it(machine):
    version = GENERATIONS[machine.generation].ray_version
    for topology in gke_topologies(machine):
        in_ray = ray_tpu.TPUAcceleratorManager.is_valid_tpu_accelerator_topology(version, topology)
        assert (accepted(machine.name, topology) is not None) == in_ray, topology


@pytest.mark.parametrize(
    ("machine", "made_by_gke", "legal"),
    [
        ("ct4p-hightpu-4t", 186, 20),
        ("ct5p-hightpu-4t", 414, 44),
        ("tpu7x-standard-4t", 432, 10),
        ("tpu7x-ultranet-4t", 432, 10),
        ("ct5lp-hightpu-4t", 7, 7),
        ("ct6e-standard-4t", 7, 7),
    ],
)
def test_the_numbers_of_topologies_are_those_counted_with_google_and_ray(
    machine, made_by_gke, legal
):
    assert len(gke_topologies(MACHINES[machine])) == made_by_gke
    assert len(topologies(MACHINES[machine])) == legal


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_what_only_ray_accepts_is_refused(machine):
    """Ray also lists 2x8, and 3-D topologies in any order of their sizes."""
    in_ray = ray_tpu.VALID_TPU_TOPOLOGY[GENERATIONS[machine.generation].ray_version]
    for topology in in_ray - set(gke_topologies(machine)):
        assert accepted(machine.name, topology) is None, topology


@pytest.mark.parametrize(("machine", "topology"), LEGAL)
def test_ray_gives_a_slice_the_same_names(machine, topology, monkeypatch):
    tpu = resolve(machine, topology)
    assert get_tpu_version_from_type(tpu.accelerator_type) == tpu.generation.ray_version
    assert tpu.pod_type == ray_tpu.infer_tpu_pod_type_from_topology(topology, tpu.accelerator_type)
    for key, value in {
        "TPU_NAME": "any",
        "TPU_WORKER_ID": "0",
        "TPU_ACCELERATOR_TYPE": tpu.pod_type,
        "TPU_TOPOLOGY": topology,
    }.items():
        monkeypatch.setenv(key, value)
    manager = ray_tpu.TPUAcceleratorManager
    assert manager.get_current_node_accelerator_type() == tpu.accelerator_type
    assert tpu.head_resource in (manager.get_current_node_additional_resources() or {})
    labels = manager.get_current_node_accelerator_labels()
    ours = dict(tpu.ray_labels)
    assert ours.pop("ray.io/accelerator-type") == tpu.accelerator_type
    assert ours.items() <= labels.items()


@pytest.mark.parametrize(("machine", "topology"), LEGAL)
def test_ray_sizes_a_slice_alike_once_it_is_told_the_chips_a_host(machine, topology):
    tpu = resolve(machine, topology, count=2)
    workers, resources = get_tpu_worker_resources(
        topology, tpu.accelerator_type, num_slices=2, chips_per_vm=tpu.chips_per_host
    )
    assert (workers, resources["TPU"]) == (tpu.workers, tpu.chips_per_host)


@pytest.mark.parametrize(("machine", "topology"), LEGAL)
def test_the_model_knows_the_chips_a_host_that_ray_assumes(machine, topology):
    tpu = resolve(machine, topology)
    assumed = ray_tpu.get_chips_per_host(topology, tpu.generation.ray_version)
    assert tpu.ray_chips_per_host == assumed
    assert tpu.reserved_whole == (tpu.chips > assumed)


def test_ray_is_wrong_by_itself_only_about_2x4_of_two_vms():
    wrong = [
        (machine, topology)
        for machine, topology in (param.values for param in LEGAL)
        if resolve(machine, topology).ray_chips_per_host
        != resolve(machine, topology).chips_per_host
    ]
    assert wrong == [("ct5lp-hightpu-4t", "2x4"), ("ct6e-standard-4t", "2x4")]


def test_the_catalogue_knows_which_topologies_ray_takes_for_one_host():
    assert set(RAY_WHOLE_HOST_2D) == set(ray_tpu.TPU_SINGLE_HOST_TOPOLOGIES)


def scaling(tpu, workers):
    return ScalingConfig(
        num_workers=workers,
        use_tpu=True,
        topology=tpu.topology,
        accelerator_type=tpu.accelerator_type,
        resources_per_worker={"TPU": tpu.chips_per_host},
    )


@pytest.mark.parametrize(("machine", "topology"), LEGAL)
def test_ray_train_accepts_the_workers_of_a_slice_and_no_other_number(machine, topology):
    tpu = resolve(machine, topology)
    assert scaling(tpu, tpu.workers).num_workers == tpu.workers
    assert scaling(tpu, 2 * tpu.workers).num_workers == 2 * tpu.workers
    if tpu.multi_host:
        with pytest.raises(ValueError, match="multiple of"):
            scaling(tpu, tpu.workers + 1)


@pytest.mark.parametrize(("machine", "topology"), LEGAL)
def test_ray_train_takes_the_workers_of_two_slices_for_two_slices(machine, topology):
    """It falls back to one without a word if it cannot compute them."""
    tpu = resolve(machine, topology, count=2)
    slices = get_tpu_num_slices_for_workers(
        topology, tpu.accelerator_type, tpu.workers, {"TPU": tpu.chips_per_host}
    )
    assert slices == 2


@pytest.mark.parametrize(
    ("machine", "topology"), [("tpu7x-standard-1t", "1x1x1"), ("ct5p-hightpu-1t", "1x1x1")]
)
def test_a_part_of_a_host_is_refused_since_rays_slice_functions_fail_on_it(machine, topology):
    accelerator_type = {"tpu7x-standard-1t": "TPU-V7X", "ct5p-hightpu-1t": "TPU-V5P"}[machine]
    with pytest.raises(ValueError, match="not divisible"):
        get_tpu_worker_resources(topology, accelerator_type)
    assert accepted(machine, topology) is None
