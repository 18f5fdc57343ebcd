"""What each entry may say alone, and what cannot be together."""

import pytest

from tests.infra.config.stack import SOUND, changed, faults, read

ONE_HOST = {"name": "big", "machine_type": "ct6e-standard-8t", "topology": "2x4"}
TWO_HOSTS = {"name": "big", "machine_type": "ct6e-standard-4t", "topology": "2x4"}


def only_fault(stack, where):
    lines = faults(stack)
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"raytpu:{where}: ")
    return lines[0]


def alone(tpu, **train):
    """A stack of one slice, on which all that trains and serves is one training run."""
    run = {**SOUND["workloads"][1], "slice": tpu["name"], **train}
    return changed(slices=[tpu], workloads=[SOUND["workloads"][0], run])


# Names and references


def test_names_are_used_once():
    lines = faults(changed(slices__1__name="train", workloads__2__slice="train"))
    assert "raytpu:slices[1].name: 'train' is also raytpu:slices[0].name; choose another" in (lines)
    line = only_fault(changed(workloads__2__name="corpus"), "workloads[2].name")
    assert "is also raytpu:workloads[0].name" in line


def test_a_slice_and_a_workload_may_share_a_name():
    assert SOUND["slices"][1]["name"] == SOUND["workloads"][2]["name"]
    assert faults(SOUND) == []


def test_a_workload_names_a_slice_that_exists():
    line = only_fault(changed(workloads__1__slice="trian"), "workloads[1].slice")
    assert line.endswith("'trian' is no slice; use 'train' or 'chat'")


@pytest.mark.parametrize(
    ("path", "name", "way_out"),
    [
        ("workloads__1__data", "corpse", "use 'corpus', or {path: ...}"),
        ("workloads__1__data", "pretrain", "use 'corpus', or {path: ...}"),
        ("workloads__2__model", "corpus", "use 'pretrain', or {path: ...}"),
    ],
)
def test_a_reference_names_a_workload_of_the_right_kind(path, name, way_out):
    lines = faults(changed(**{path: name}))
    assert len(lines) == 1
    assert lines[0].endswith(way_out)


def test_a_reference_to_an_entry_at_fault_is_not_a_second_fault():
    only_fault(changed(slices__0__topology="5x5"), "slices[0].topology")
    only_fault(changed(workloads__0__vocab_size=1), "workloads[0].vocab_size")
    only_fault(changed(workloads__1__steps="x"), "workloads[1].steps")


# Slices side by side


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ct6e-standard-8t", "2x4"), ("ct6e-standard-4t", "2x4")),
        (("ct5lp-hightpu-4t", "2x4"), ("ct5lp-hightpu-8t", "2x4")),
        (("ct5p-hightpu-4t", "4x4x16"), ("ct5p-hightpu-4t", "4x8x8")),
        (("ct4p-hightpu-4t", "8x8x8"), ("ct4p-hightpu-4t", "4x8x16")),
        (("tpu7x-standard-4t", "2x2x1"), ("tpu7x-ultranet-4t", "2x2x1")),
    ],
)
def test_slices_that_ray_cannot_tell_apart_are_refused(one, other):
    slices = [
        {"name": name, "machine_type": machine, "topology": topology}
        for name, (machine, topology) in {"one": one, "other": other}.items()
    ]
    lines = [line for line in faults(changed(slices=slices)) if "slices[1]" in line]
    assert len(lines) == 1
    assert "to Ray, which reserves slices by that name alone" in lines[0]


@pytest.mark.parametrize(
    ("machine", "topology"),
    [
        ("ct6e-standard-4t", "4x4"),  # the same shape twice: either will do
        ("ct6e-standard-4t", "4x8"),  # another number of chips
        ("ct5lp-hightpu-4t", "4x4"),  # another generation
    ],
)
def test_slices_that_ray_can_tell_apart_or_need_not_are_accepted(machine, topology):
    other = {"name": "other", "machine_type": machine, "topology": topology}
    stack = changed(slices__1=other, workloads=[])
    assert faults(stack) == []


def test_more_hosts_than_one_machine_simulates_are_refused():
    line = only_fault(changed(slices__1__count=13), "slices")
    assert "17 hosts (4 of train + 13 of chat)" in line
    assert "at most 16" in line
    assert faults(changed(slices__1__count=12)) == []


def test_a_slice_that_serves_is_held_for_good():
    second = {**SOUND["workloads"][2], "name": "second"}
    line = only_fault(changed(workloads__3=second), "workloads[3].slice")
    assert "is held by raytpu:workloads[2]" in line
    stack = changed(workloads__1__slice="chat", workloads__1__mesh={"data": 4})
    lines = [line for line in faults(stack) if "held" in line]
    assert [line.partition(": ")[0] for line in lines] == ["raytpu:workloads[1].slice"]


def test_two_training_runs_may_take_turns_on_a_slice():
    second = {**SOUND["workloads"][1], "name": "second"}
    assert faults(changed(workloads__3=second)) == []


# Training


@pytest.mark.parametrize(
    "mesh",
    [
        {"data": 16},
        {"data": 4, "tensor": 4},
        {"data": 8, "tensor": 2},
        {"fsdp": 16},
        {"data": 2, "fsdp": 4, "tensor": 2},
    ],
)
def test_a_mesh_that_covers_the_slice_is_accepted(mesh):
    assert faults(changed(workloads__1__mesh=mesh)) == []


def test_a_mesh_of_another_size_than_the_slice_is_refused_with_both_numbers():
    line = only_fault(changed(workloads__1__mesh={"data": 4, "tensor": 2}), "workloads[1].mesh")
    assert "data 4 x tensor 2 = 8" in line
    assert "16 chips" in line


def test_all_three_axes_of_a_mesh_count_and_are_named():
    mesh = {"data": 2, "fsdp": 2, "tensor": 2}
    line = only_fault(changed(workloads__1__mesh=mesh), "workloads[1].mesh")
    assert "data 2 x fsdp 2 x tensor 2 = 8 does not cover the 16 chips" in line


def test_a_mesh_spans_all_copies_of_a_slice():
    two = changed(slices__0__count=2, workloads__1__mesh={"data": 32})
    assert faults(two) == []
    only_fault(changed(slices__0__count=2), "workloads[1].mesh")


def test_no_copy_of_the_model_spans_two_slices():
    mesh = {"data": 1, "tensor": 32}
    model = {"attention_heads": 32, "key_value_heads": 32}
    stack = changed(slices__0__count=2, workloads__1__mesh=mesh, workloads__1__model=model)
    assert "several of the 2 slices" in only_fault(stack, "workloads[1].mesh.data")
    stack = changed(slices__0__count=2, workloads__1__mesh={"fsdp": 32})
    assert "several of the 2 slices" in only_fault(stack, "workloads[1].mesh.data")


@pytest.mark.parametrize(("batch", "nearest"), [(40, "32 or 48"), (12, "such as 16"), (17, "16")])
def test_a_batch_divides_over_all_chips(batch, nearest):
    line = only_fault(changed(workloads__1__global_batch=batch), "workloads[1].global_batch")
    assert nearest in line


def test_a_batch_is_cut_by_chips_even_where_a_copy_of_the_model_takes_several():
    """Ray Data gives each local device an equal part of a host's rows, whatever the mesh."""
    stack = changed(workloads__1__mesh={"data": 4, "tensor": 4}, workloads__1__global_batch=8)
    only_fault(stack, "workloads[1].global_batch")


@pytest.mark.parametrize(
    ("size", "value"),
    [("attention_heads", 12), ("key_value_heads", 4), ("intermediate_size", 100)],
)
def test_the_tensor_axis_divides_the_model(size, value):
    model = {"attention_heads": 16, "key_value_heads": 8, "intermediate_size": 384, size: value}
    stack = changed(workloads__1__mesh={"data": 2, "tensor": 8}, workloads__1__model=model)
    lines = [line for line in faults(stack) if "workloads[1].mesh.tensor" in line]
    assert len(lines) == 1
    assert f"8 does not divide {size} {value}" in lines[0]


def test_the_fsdp_axis_divides_the_hidden_size():
    mesh, model = {"fsdp": 16}, {"hidden_size": 120}
    stack = changed(workloads__1__mesh=mesh, workloads__1__model=model)
    line = only_fault(stack, "workloads[1].mesh.fsdp")
    assert "16 does not divide hidden_size 120" in line
    assert (
        faults(changed(workloads__1__mesh={"data": 2, "fsdp": 8}, workloads__1__model=model)) == []
    )


@pytest.mark.parametrize(
    ("mesh", "parts", "sound"),
    [
        # 32 sequences: 2 on each of 16 devices, or 8 on each of 4 groups of tensor 4.
        ({"data": 16}, 2, True),
        ({"data": 16}, 4, False),
        ({"data": 4, "tensor": 4}, 8, True),
        ({"fsdp": 4, "tensor": 4}, 16, False),
        ({"data": 2, "fsdp": 2, "tensor": 4}, 3, False),
    ],
)
def test_the_parts_of_a_batch_take_equally_many_rows_of_each_device(mesh, parts, sound):
    stack = changed(workloads__1__mesh=mesh, workloads__1__gradient_accumulation_steps=parts)
    if sound:
        assert faults(stack) == []
    else:
        line = only_fault(stack, "workloads[1].gradient_accumulation_steps")
        rows = 32 // (mesh.get("data", 1) * mesh.get("fsdp", 1))
        assert f"{parts} parts of the {rows} sequences of each device" in line


def test_a_server_has_no_fsdp_axis():
    line = only_fault(changed(workloads__2__mesh={"fsdp": 4}), "workloads[2].mesh.fsdp")
    assert "there is no such key" in line


def test_the_tensor_axis_divides_the_vocabulary():
    stack = changed(workloads__1__mesh={"data": 4, "tensor": 4}, workloads__0__vocab_size=2050)
    lines = faults(stack)
    assert [line.partition(": ")[0] for line in lines] == [
        "raytpu:workloads[1].mesh.tensor",
        "raytpu:workloads[2].mesh.tensor",
    ]
    assert "vocab_size 2050" in lines[0]


def test_key_value_heads_are_shared_evenly():
    model = {"attention_heads": 8, "key_value_heads": 3}
    stack = changed(workloads__1__model=model)
    assert any("workloads[1].model.key_value_heads: 3 " in line for line in faults(stack))


@pytest.mark.parametrize("steps", [20, 5])
def test_warm_up_leaves_steps_to_train(steps):
    line = only_fault(changed(workloads__1__steps=steps), "workloads[1].warmup_steps")
    assert f"steps is {steps}" in line


def test_two_slices_of_one_host_are_no_slice_for_one_program():
    tpu = {**ONE_HOST, "count": 2}
    line = only_fault(alone(tpu, mesh={"data": 16}), "workloads[1].slice")
    assert "only if they are of several hosts" in line
    assert faults(alone(ONE_HOST, mesh={"data": 8})) == []


@pytest.mark.parametrize("machine", ["ct6e-standard-4t", "ct5lp-hightpu-4t"])
def test_2x4_of_two_vms_trains_alone_but_not_beside_what_ray_would_mix_it_with(machine):
    tpu = {**TWO_HOSTS, "machine_type": machine}
    assert faults(alone(tpu, mesh={"data": 8})) == []
    line = only_fault(alone({**tpu, "count": 2}, mesh={"data": 16}), "workloads[1].slice")
    assert "Ray Train takes it for one host" in line
    beside = {"name": "other", "machine_type": machine, "topology": "4x4"}
    stack = alone(tpu, mesh={"data": 8})
    stack["slices"].append(beside)
    assert "slice 'other'" in only_fault(stack, "workloads[1].slice")


def test_2x4_of_two_vms_trains_beside_hosts_that_ray_cannot_confuse_with_its_own():
    stack = alone(TWO_HOSTS, mesh={"data": 8})
    stack["slices"] += [
        {"name": "one-chip", "machine_type": "ct6e-standard-1t", "topology": "1x1"},
        {"name": "v5e", "machine_type": "ct5lp-hightpu-4t", "topology": "2x2"},
    ]
    assert faults(stack) == []


# Serving


@pytest.mark.parametrize("tpu", [ONE_HOST, TWO_HOSTS])
def test_a_replica_is_served_by_one_host_or_several(tpu):
    mesh = {"data": 2, "tensor": 4}
    stack = changed(slices__1=tpu, workloads__2__slice="big", workloads__2__mesh=mesh)
    assert faults(stack) == []


def test_replicas_may_be_as_many_as_slices():
    assert faults(changed(slices__1__count=3)) == []


def test_a_server_uses_all_chips_of_its_slice():
    line = only_fault(changed(workloads__2__mesh={"tensor": 2}), "workloads[2].mesh")
    assert "2 does not cover the 4 chips" in line


def test_a_server_divides_the_model_that_it_is_to_load():
    model = {"attention_heads": 6, "key_value_heads": 2}
    line = only_fault(changed(workloads__1__model=model), "workloads[2].mesh.tensor")
    assert "4 does not divide attention_heads 6, key_value_heads 2 of workload 'pretrain'" in line
    assert "use a divisor of 2" in line


def test_a_servers_requests_divide_over_its_data_axis():
    mesh = {"data": 4, "tensor": 1}
    assert faults(changed(workloads__2__mesh=mesh, workloads__2__max_batch=12)) == []
    stack = changed(workloads__2__mesh=mesh, workloads__2__max_batch=6)
    assert "6 is no multiple of mesh axis data" in only_fault(stack, "workloads[2].max_batch")


# Remarks


def test_an_idle_slice_and_long_answers_are_remarked_and_allowed():
    stack = changed(
        slices__2={"name": "spare", "machine_type": "ct5lp-hightpu-1t", "topology": "1x1"},
        workloads__2__max_sequence_length=256,
    )
    assert [remark.where for remark in read(stack).remarks] == [
        "raytpu:slices[2]",
        "raytpu:workloads[2].max_sequence_length",
    ]


# Chips that are two devices each

IRONWOOD = {"name": "train", "machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}
TOLD = "16 devices (8 chips of 2)"


def test_a_run_on_tpu7x_has_a_mesh_of_two_devices_a_chip():
    assert faults(alone(IRONWOOD, mesh={"data": 16})) == []
    line = only_fault(alone(IRONWOOD, mesh={"data": 8}), "workloads[1].mesh")
    assert f"data 8 x tensor 1 = 8 does not cover the {TOLD} of the slice; " in line
    assert line.endswith("choose the axes so that their product is 16")


def test_a_batch_on_tpu7x_divides_over_two_devices_a_chip():
    stack = alone(IRONWOOD, mesh={"data": 16}, global_batch=24)
    line = only_fault(stack, "workloads[1].global_batch")
    assert f"24 sequences do not divide over {TOLD} (2 hosts of 8); use a multiple of 16" in line


def test_what_shares_out_a_slice_by_default_shares_out_its_devices():
    stack = alone(IRONWOOD, mesh={"data": 16}, model={"key_value_heads": 8})
    answers = {"name": "answers", "kind": "infer", "slice": "train", "model": "pretrain"}
    stack["workloads"].append({**answers, "prompts": ["gs://acme/prompts"]})
    assert faults(stack) == []  # data 2 x tensor 8: a copy on the eight devices of each host
    stack["workloads"][1]["model"] = {"key_value_heads": 4}
    assert "8 does not divide key_value_heads 4" in only_fault(stack, "workloads[2].mesh.tensor")
