"""What is proposed in place of a workload that does not fit."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.preflight.nearest import Need, nearest
from infra.preflight.programs import Subject, steps, subjects
from tests.infra.config.stack import SOUND, changed, on_gke, read
from workloads.preflight.program import Answer, Measured

GIB = 2**30
MACHINES = {"1x1": "ct6e-standard-1t", "2x2": "ct6e-standard-4t", "2x4": "ct6e-standard-8t"}
MODEL = {"layers": 2, "attention_heads": 8, "key_value_heads": 8}


def declared(**changes):
    """The first workload on a TPU of the sound stack with changes."""
    return next(one for one in subjects(read(changed(**changes))) if isinstance(one, Subject))


def trained(**workload):
    changes = {f"workloads__1__{key}": value for key, value in workload.items()}
    return declared(workloads__1__model=MODEL, **changes)


def served(model=MODEL, **workload) -> Any:
    changes = {f"workloads__2__{key}": value for key, value in workload.items()}
    found = [*subjects(read(changed(workloads__1__model=model, **changes)))]
    return found[1]


def answers(size_of):
    """A compiler by which a step needs what `size_of` says, and the steps that it was asked."""
    asked = []

    def ask(step):
        asked.append(step)
        measured = Measured(argument_bytes=1, hbm_bytes=size_of(step), limit_bytes=32 * GIB)
        return Answer(measured=measured)

    return ask, asked


def proposed(subject, needed, ask) -> Any:
    return nearest(subject, needed, ask)


def need(argument_gib, scratch_gib=0):
    return Need(argument_gib * GIB, scratch_gib * GIB, 32 * GIB)


@pytest.mark.parametrize(
    ("argument_gib", "said"),
    [
        (40, "mesh data 8 x fsdp 2 x tensor 1"),
        (100, "mesh data 4 x fsdp 4 x tensor 1"),
        (500, "mesh data 1 x fsdp 16 x tensor 1"),
    ],
)
def test_parameters_that_are_too_many_are_cut_as_little_as_it_takes(argument_gib, said):
    ask, asked = answers(lambda step: int(argument_gib * GIB / step.settings.mesh.fsdp))
    found = proposed(trained(), need(argument_gib), ask)
    assert found.said == said
    assert len(asked) == 1  # the estimate passed over all that came before


def test_activations_that_are_too_many_are_computed_anew_before_less_is_learnt():
    ask, _ = answers(lambda step: 20 * GIB if step.settings.remat == "layers" else 50 * GIB)
    assert proposed(trained(), need(1, 50), ask).said == "remat layers"


def test_a_batch_is_taken_in_parts_before_it_is_made_smaller():
    ask, _ = answers(lambda step: 80 * GIB // step.settings.gradient_accumulation_steps)
    found = proposed(trained(global_batch=256), need(1, 80), ask)
    assert found.said == "gradient_accumulation_steps 4"


def test_a_batch_that_has_no_parts_is_made_smaller():
    ask, _ = answers(lambda step: int(step.settings.global_batch / 48 * 50 * GIB))
    found = proposed(trained(global_batch=48, remat="layers"), need(1, 50), ask)
    assert found.said == "global_batch 16"


def test_a_larger_slice_is_the_last_that_is_tried():
    def size(step):
        return 20 * GIB if step.chips.topology == "4x8" else 40 * GIB

    ask, asked = answers(size)
    found = proposed(trained(global_batch=64), need(1, 39), ask)
    assert found.said == "topology 4x8 with mesh data 32 x tensor 1"
    assert asked[-1].chips.devices == 32


def test_a_server_that_is_too_large_for_its_host_gets_a_larger_one():
    ask, asked = answers(lambda step: 10 * GIB if step.chips.devices == 8 else 40 * GIB)
    found = proposed(served(), need(40), ask)
    assert found.said == "topology 2x4 on ct6e-standard-8t with mesh data 1 x tensor 8"
    assert [step.kind for step in asked[-2:]] == ["prefill", "decode"]


def test_a_server_that_is_too_large_for_any_host_gets_a_slice_of_several():
    heads = {"layers": 2, "attention_heads": 16, "key_value_heads": 16}
    ask, _ = answers(lambda step: 10 * GIB if step.chips.devices == 16 else 40 * GIB)
    found = proposed(served(model=heads), need(100), ask)
    assert found.said == "topology 4x4 on ct6e-standard-4t with mesh data 1 x tensor 16"


def test_a_cache_that_is_too_large_gets_fewer_rows():
    ask, _ = answers(lambda step: step.settings.max_batch * 10 * GIB)
    assert proposed(served(max_batch=8), need(1, 20), ask).said == "max_batch 2"


def test_nothing_is_proposed_where_nothing_fits():
    ask, asked = answers(lambda _: 33 * GIB)
    assert proposed(trained(global_batch=256), need(30, 3), ask) is None
    assert len(asked) <= 12


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_what_is_tried_is_a_stack_without_fault(data):
    """The rules of `raytpu check` know nothing of the search."""
    topology = data.draw(st.sampled_from(["2x2", "4x4", "4x8"]))
    count = 1 if topology == "2x2" else data.draw(st.sampled_from([1, 2]))
    chips = {"2x2": 4, "4x4": 16, "4x8": 32}[topology] * count
    tensor = data.draw(st.sampled_from([1, 2, 4]))
    heads = data.draw(st.sampled_from([4, 8, 12]))
    parts = data.draw(st.sampled_from([1, 2]))
    changes = {
        "slices__0__topology": topology,
        "slices__0__count": count,
        "workloads__1__global_batch": chips * parts * data.draw(st.integers(1, 12)),
        "workloads__1__gradient_accumulation_steps": parts,
        "workloads__1__mesh": {"data": chips // tensor, "tensor": tensor},
        "workloads__1__model": {"attention_heads": heads, "key_value_heads": heads},
        "workloads__2__mesh": {"data": 4 // tensor, "tensor": tensor},
    }
    ask, asked = answers(lambda _: 33 * GIB)
    for subject in subjects(read(_on_gke(changes))):
        assert proposed(subject, need(1, 1), ask) is None
        assert isinstance(subject, Subject)
        declared_steps = steps(subject)
        assert not [step for step in asked if step in declared_steps]
    for step in (one for one in asked if one.kind != "decode"):
        slice_ = 0 if step.kind == "train" else 1
        settings = step.settings.model_dump(mode="json")
        host = MACHINES[step.chips.host_topology]
        written = {f"workloads__{slice_ + 1}__{key}": value for key, value in settings.items()}
        place = {
            f"slices__{slice_}__topology": step.chips.topology,
            f"slices__{slice_}__machine_type": host,
        }
        read(_on_gke({**changes, **written, **place}))


def _on_gke(changes):
    """Where no machine limits the hosts."""
    host, server = copy.deepcopy((SOUND["slices"][1], SOUND["workloads"][2]))
    return on_gke(slices__1=host, workloads__2=server, **changes)
