"""Workloads on Kubernetes, each on a Ray cluster of its own.

Some reported faults cannot be written in a stack file, since what they get wrong is derived: the
worker groups' hosts and replicas, a trainer's number of workers, the chips of a deployment, a
folder that only some hosts see, a dashboard that is open to all.
"""

import pytest

from tests.infra.config.stack import (
    GKE,
    faults,
    on_autopilot,
    on_existing,
    on_gke,
    only,
    read,
    remarks,
)

JAX = {
    "name": "chat",
    "kind": "serve",
    "slice": "chat",
    "model": "pretrain",
    "mesh": {"data": 2, "tensor": 4},
}
MULTI_HOST = {"name": "chat", "machine_type": "ct6e-standard-4t", "topology": "4x8"}
BY_HAND = {"name": "by-hand", "kind": "cluster", "slice": "train"}


@pytest.mark.parametrize("made", [on_gke, on_autopilot, on_existing])
def test_the_sound_stack_has_no_fault_in_any_mode(made):
    assert faults(made()) == []


def test_the_sound_stack_leaves_nothing_to_remark():
    assert remarks(GKE) == []


@pytest.mark.parametrize("made", [on_gke, on_autopilot, on_existing])
@pytest.mark.parametrize("key", ["team", "images"])
def test_what_only_the_local_stack_can_do_without_is_missed(made, key):
    stack = made()
    del stack[key]
    assert "is missing; add" in only(faults(stack), key)


def test_engine_vllm_needs_an_image_of_its_own():
    line = only(faults(on_gke(images={"ray": "example.dev/ray:1"})), "images.vllm")
    assert "'chat'" in line
    stack = on_gke(images={"ray": "example.dev/ray:1"}, workloads__2=JAX)
    assert faults(stack) == []


@pytest.mark.parametrize(
    ("image", "what"),
    [
        ("example.dev/ray", "names no fixed image"),
        ("example.dev/ray:latest", "may be another image tomorrow"),
        ("Example.dev/ray:1", "names no fixed image"),
        ("example.dev/ray@sha256:1234", "names no fixed image"),
        ("example.dev/ray:1 ", "names no fixed image"),
    ],
)
def test_an_image_is_the_same_tomorrow(image, what):
    assert what in only(faults(on_gke(images__ray=image)), "images.ray")


@pytest.mark.parametrize(
    "image",
    [
        "ray:1",
        "localhost:5000/ray:1",
        "us-east5-docker.pkg.dev/acme-ml/raytpu-dev/ray:0.1.0",
        f"example.dev/ray@sha256:{'0' * 64}",
    ],
)
def test_an_image_by_tag_or_digest_is_accepted(image):
    assert faults(on_gke(images__ray=image)) == []


# Serving


def test_both_engines_serve_from_several_hosts():
    assert faults(on_gke(slices__1=MULTI_HOST)) == []
    jax = {**JAX, "mesh": {"data": 8, "tensor": 4}}
    assert faults(on_gke(slices__1=MULTI_HOST, workloads__2=jax)) == []


def test_engine_jax_serves_from_a_2x4_of_two_hosts_which_it_counts_itself():
    tpu = {"name": "chat", "machine_type": "ct6e-standard-4t", "topology": "2x4"}
    jax = {**JAX, "mesh": {"data": 2, "tensor": 4}}
    assert faults(on_gke(slices__1=tpu, workloads__2=jax)) == []


@pytest.mark.parametrize(
    ("topology", "part", "line"),
    [
        ("4x4", "2x4", None),
        ("4x4", "4x4", "is no part that Ray can reserve of slice chat, 4x4 on ct6e-standard-4t"),
        ("4x4", "2x8", "use one of 2x2, 2x4, or leave it out"),
        ("4x8", "2x4", "of slice chat, 4x8 on ct6e-standard-4t; leave it out"),
        ("2x4", "2x2", "of slice chat, 2x4 on ct6e-standard-4t; leave it out"),
    ],
)
def test_a_replica_takes_a_part_that_ray_can_reserve(topology, part, line):
    jax = {**JAX, "replica_topology": part, "mesh": None}
    lines = faults(on_gke(slices__1={**MULTI_HOST, "topology": topology}, workloads__2=jax))
    place = "workloads[2].replica_topology"
    told = [one for one in lines if place in one]
    assert told == [] if line is None else line in only(told, place)


def test_parts_are_those_of_one_slice_since_ray_looks_into_no_second():
    slice_ = {**MULTI_HOST, "topology": "4x4", "count": 2}
    jax = {**JAX, "replica_topology": "2x4", "mesh": {"data": 4, "tensor": 2}}
    line = only(faults(on_gke(slices__1=slice_, workloads__2=jax)), "workloads[2].replica_topology")
    assert "there are 2 copies of slice chat too; use count 1" in line


def test_the_mesh_of_a_replica_covers_its_part():
    part = {**JAX, "replica_topology": "2x4"}
    slice_ = {**MULTI_HOST, "topology": "4x4"}
    whole, fits = ({**part, "mesh": {"data": 4, "tensor": t}} for t in (4, 2))
    lines = faults(on_gke(slices__1=slice_, workloads__2=whole))
    assert "= 16 does not cover the 8 chips" in only(lines, "workloads[2].mesh")
    assert faults(on_gke(slices__1=slice_, workloads__2=fits)) == []


def test_vllm_takes_no_part():
    stack = on_gke(slices__1=MULTI_HOST, workloads__2__replica_topology="2x4")
    line = only(faults(stack), "workloads[2].replica_topology")
    assert "a replica of vLLM takes all of slice chat" in line


@pytest.mark.parametrize(
    ("topology", "mesh", "line"),
    [
        ("4x8", {"tensor": 1}, "data 1 x tensor 1 = 1 does not cover the 32 chips"),
        ("4x4", {"tensor": 32}, "data 1 x tensor 32 = 32 does not cover the 16 chips"),
        ("4x8", {"tensor": 32}, None),
        ("4x8", {"data": 2, "tensor": 16}, "2 copies of the model in one replica"),
        ("4x8", None, None),
    ],
)
def test_an_engine_takes_the_whole_slice(topology, mesh, line):
    """On a TPU an engine that asks for a part of a slice of several hosts waits for ever."""
    stack = on_gke(slices__1={**MULTI_HOST, "topology": topology}, workloads__2__mesh=mesh)
    lines = faults(stack)
    place = "workloads[2].mesh.data" if mesh and "data" in mesh else "workloads[2].mesh"
    assert lines == [] if line is None else line in only(lines, place)


@pytest.mark.parametrize(
    ("machine", "hosts_counted_right"),
    [
        ("ct6e-standard-8t", True),
        ("ct5lp-hightpu-8t", True),
        ("ct6e-standard-4t", False),  # two hosts of 4 chips, and Ray asks for one of 8
        ("ct5lp-hightpu-4t", False),
    ],
)
def test_vllm_gets_no_2x4_of_two_hosts_since_ray_serve_would_wait_for_one(
    machine, hosts_counted_right
):
    tpu = {"name": "chat", "machine_type": machine, "topology": "2x4"}
    lines = faults(on_gke(slices__1=tpu))
    if hosts_counted_right:
        assert lines == []
    else:
        assert "Ray Serve takes it for one of 8" in only(lines, "workloads[2].slice")


def test_a_key_that_the_engine_would_not_check_is_refused():
    stack = on_gke(workloads__2__engine="vllm", workloads__2__api_key="k")
    line = only(faults(stack, secret_keys=["raytpu:workloads"]), "workloads[2].api_key")
    assert "would be asked of no client" in line


def test_engine_jax_loads_what_the_stack_trained_and_not_the_hub():
    stack = on_gke(workloads__2={**JAX, "model": {"hub": "Qwen/Qwen3-4B"}})
    assert "cannot be loaded by engine jax" in only(faults(stack), "workloads[2].model.hub")


@pytest.mark.parametrize("hub", ["Qwen3-4B", "a/b/c", "Qwen/ Qwen3", "https://hub/Qwen", "", 4])
def test_a_model_of_the_hub_has_an_owner_and_a_name(hub):
    only(faults(on_gke(workloads__2__model={"hub": hub})), "workloads[2].model.hub")


@pytest.mark.parametrize(
    ("upgrade", "tpu", "most", "what"),
    [
        ("new_cluster", {}, None, "node pools of slice 'chat' hold no second set"),
        ("new_cluster", {"provision": "compute_class"}, 31, "32 in all, and raytpu:team.max_chips"),
        ("new_cluster", {"provision": "compute_class"}, 32, None),
        ("new_cluster", {"provision": "compute_class"}, None, None),
        ("in_place", {}, 24, None),
    ],
)
def test_an_upgrade_asks_for_a_second_slice_only_where_there_can_be_one(upgrade, tpu, most, what):
    slices = [GKE["slices"][0], {**GKE["slices"][1], **tpu}]  # 16 and 8 chips
    lines = faults(on_gke(slices=slices, team__max_chips=most, workloads__2__upgrade=upgrade))
    assert lines == [] if what is None else what in only(lines, "workloads[2].upgrade")


# Slices


def test_a_quota_holds_all_that_is_declared():
    line = only(faults(on_gke(team__max_chips=23)), "team.max_chips")
    assert "23 is less than the 24 chips that the stack declares (16 of train + 8 of chat)" in line
    assert faults(on_gke(team__max_chips=24)) == []


@pytest.mark.parametrize("kind", ["train", "serve", "cluster"])
def test_a_slice_has_one_workload_since_each_has_a_ray_cluster_of_its_own(kind):
    other = {
        "train": {**GKE["workloads"][1], "name": "other"},
        "serve": {**JAX, "name": "other", "slice": "train"},
        "cluster": BY_HAND,
    }[kind]
    lines = [line for line in faults(on_gke(workloads__3=other)) if "is also" in line]
    assert "is also the slice of raytpu:workloads[1]" in only(lines, "workloads[3].slice")


def test_slices_of_different_workloads_may_be_alike_to_ray():
    """Each has a Ray cluster of its own, and node labels tell their nodes apart."""
    tpu = {"name": "chat", "machine_type": "ct6e-standard-4t", "topology": "2x4"}
    stack = on_gke(
        slices__2={**tpu, "name": "by-hand"}, workloads__3={**BY_HAND, "slice": "by-hand"}
    )
    assert faults(stack) == []


def test_2x4_of_two_vms_trains_beside_others_since_its_ray_cluster_has_no_others():
    two_vms = {"name": "train", "machine_type": "ct6e-standard-4t", "topology": "2x4"}
    stack = on_gke(slices__0=two_vms, workloads__1__mesh={"data": 8})
    assert faults(stack) == []
    stack = on_gke(slices__0={**two_vms, "count": 2}, workloads__1__mesh={"data": 16})
    assert "those of its other copy" in only(faults(stack), "workloads[1].slice")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("ct6e-standard-8t", "2x4"), ("ct6e-standard-4t", "2x4")),
        (("ct5p-hightpu-4t", "4x4x16"), ("ct5p-hightpu-4t", "4x8x8")),
        (("tpu7x-standard-4t", "2x2x1"), ("tpu7x-ultranet-4t", "2x2x1")),
    ],
)
def test_shapes_of_one_slice_are_not_alike_to_ray(first, second):
    one, other = ({"machine_type": m, "topology": t} for m, t in (first, second))
    stack = on_gke(slices=[{"name": "any", **one, "fallback": [other]}], workloads=[])
    line = only(faults(stack), "slices[0].fallback[0]")
    assert "to Ray, which reserves slices by that name alone" in line


V5E = {"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}


def test_a_server_does_not_choose_among_shapes():
    stack = on_gke(slices__1__fallback=[V5E])
    line = only(faults(stack), "workloads[2].slice")
    assert "has a fallback, and a workload of kind serve asks for" in line
    by_hand = {**BY_HAND, "slice": "chat"}
    stack["workloads"] = [one for one in stack["workloads"] if one["kind"] == "data"] + [by_hand]
    assert faults(stack) == []


def test_a_shape_is_not_its_own_fallback():
    shape = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
    stack = on_gke(slices__0__fallback=[shape], workloads=[BY_HAND])
    line = only(faults(stack), "slices[0].fallback[0]")
    assert "is also the shape of raytpu:slices[0]" in line


def test_the_longest_names_still_make_names_of_hosts_and_node_pools():
    """KubeRay joins group, slice and host in 63 characters, and a node pool's name may have 40."""
    tpu = {
        "name": "x" * 35,
        "machine_type": "ct6e-standard-4t",
        "topology": "16x16",
        "count": 1000,
        "fallback": [{"machine_type": "ct5p-hightpu-4t", "topology": "16x16x24"}],
    }
    (resolved,) = read(on_existing(slices=[tpu], workloads=[])).slices
    hosts = {f"{shape.name}-999-{shape.hosts - 1}" for shape in resolved.shapes}
    assert f"{'x' * 35}-v5p-16x16x24-999-1535" in hosts
    assert max(len(name) for name in hosts) <= 63
    assert len(f"{resolved.name}-999") <= 40
    line = only(
        faults(on_existing(slices=[{**tpu, "count": 1001}], workloads=[])), "slices[0].count"
    )
    assert "use 1000 or less" in line


# Places


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (
            {"workloads__0__sources": ["gs://bucket/a.txt", "texts/*.txt"]},
            "workloads[0].sources[1]",
        ),
        ({"workloads__1__data": {"path": "corpus"}}, "workloads[1].data.path"),
        ({"workloads__2__model": {"path": "/models/qwen3"}}, "workloads[2].model.path"),
    ],
)
def test_a_folder_of_this_machine_is_out_of_reach_for_pods(changes, where):
    line = only(faults(on_gke(**changes)), where)
    assert line.endswith("is on this machine, which no pod can read; use a gs:// address")


def test_buckets_are_in_reach():
    stack = on_gke(
        workloads__0__sources=["gs://bucket/*.parquet"],
        workloads__1__data={"path": "gs://bucket/corpus"},
        workloads__2__model={"path": "gs://bucket/qwen3"},
    )
    assert faults(stack) == []


@pytest.mark.parametrize(
    ("address", "sound"),
    [
        ("redis://redis.team.svc:6379", True),
        ("rediss://10.0.0.3:6379", True),
        ("redis.team.svc:6379", False),
        ("redis://redis", False),
        ("redis://user:password@redis:6379", False),
        ("redis://redis:port", False),
    ],
)
def test_an_address_of_redis_has_host_and_port_and_no_password(address, sound):
    lines = faults(on_gke(workloads__2__redis={"address": address}))
    if sound:
        assert lines == []
    else:
        assert "is no address of a Redis server" in only(lines, "workloads[2].redis.address")


@pytest.mark.parametrize(("timeout", "told"), [("29m", True), ("1s", True), ("30m", False)])
def test_a_service_that_may_be_given_up_while_it_compiles_is_remarked(timeout, told):
    lines = remarks(on_gke(workloads__2__startup_timeout=timeout))
    said = f"startup_timeout: {timeout} is less than a first compilation may take; 30m or more"
    assert [said in line for line in lines if "compilation" in line] == [True] * told
