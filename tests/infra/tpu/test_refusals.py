"""What is refused, and that the refusal says why and names the way out in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import ConfigError
from infra.tpu.catalog import MACHINES
from infra.tpu.slice import SliceSpec, TpuSlice


def refusal(machine, topology):
    spec = SliceSpec(name="s", machine_type=machine, topology=topology)
    with pytest.raises(ConfigError) as error:
        TpuSlice.resolve(spec, "raytpu:slices[0]")
    return str(error.value)


@pytest.mark.parametrize(
    ("machine", "topology", "way_out"),
    [
        # The topology exists on another machine type of the generation, or only elsewhere.
        ("ct6e-standard-8t", "4x4", "machine_type ct6e-standard-4t for 4x4"),
        ("ct5lp-hightpu-8t", "8x8", "machine_type ct5lp-hightpu-4t for 8x8"),
        ("ct6e-standard-4t", "1x1", "machine_type ct6e-standard-1t for 1x1"),
        ("ct6e-standard-1t", "2x2", "use 1x1, the only one"),
        ("ct6e-standard-4t", "4x4x4", "machine_type ct4p-hightpu-4t or ct5p-hightpu-4t or tpu7x"),
        # Written otherwise than Google writes it.
        ("ct6e-standard-4t", "4x2", "write 2x4"),
        ("ct6e-standard-4t", "4x4x1", "write 4x4"),
        ("ct5p-hightpu-4t", "8x4x4", "write 4x4x8"),
        ("tpu7x-standard-4t", "1x2x2", "write 2x2x1"),
        ("ct6e-standard-4t", "4\N{MULTIPLICATION SIGN}4", "write 4x4"),
        ("ct6e-standard-4t", "\N{FULLWIDTH DIGIT FOUR}x4", "write 4x4"),
        ("ct6e-standard-4t", "04x4", "write 4x4"),
        ("ct6e-standard-4t", "4 x 4", "write 4x4"),
        # Nothing like a topology.
        ("ct6e-standard-4t", "", "is empty; use one of 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16"),
        ("ct6e-standard-4t", "0x4", "use one of 2x2,"),
        ("ct6e-standard-4t", "-4x4", "use one of 2x2,"),
        ("ct6e-standard-4t", "4x4x4x4", "use one of 2x2,"),
        ("ct6e-standard-4t", "16", "use one of 2x2,"),
        ("ct6e-standard-4t", "9" * 5000 + "x4", "use one of 2x2,"),
        (
            "ct5p-hightpu-4t",
            "sixteen",
            "use one of 2x2x1, 2x2x2, 2x2x4, 2x4x4, 4x4x4 (the smallest",
        ),
        # Of many legal ones, the nearest in size.
        ("ct5p-hightpu-4t", "3x3x3", "2x2x2, 2x2x4, 2x4x4, 4x4x4, 4x4x8 (the nearest of 44)"),
    ],
)
def test_a_wrong_topology_is_refused_with_the_legal_ones(machine, topology, way_out):
    message = refusal(machine, topology)
    assert message.startswith("raytpu:slices[0].topology: ")
    assert way_out in message


@pytest.mark.parametrize(
    ("machine", "topology", "nearest"),
    [
        ("tpu7x-standard-4t", "4x4x12", "4x4x8"),
        ("tpu7x-standard-4t", "16x16x16", "8x16x16"),
        ("ct5p-hightpu-4t", "4x4x28", "4x4x24"),
        ("ct4p-hightpu-4t", "12x16x16", "12x12x16"),
        ("ct4p-hightpu-4t", "16x16x16", "12x12x16"),
    ],
)
def test_what_gke_makes_and_ray_refuses_is_refused_with_that_reason(machine, topology, nearest):
    message = refusal(machine, topology)
    assert "exists on GKE, but Ray's table" in message
    assert nearest in message.partition(";")[2]


def test_gke_is_not_said_to_make_what_it_does_not():
    for topology in ("4x4x400", "16x24x28", "6x6x6", "2x4x8"):
        assert "exists on GKE" not in refusal("tpu7x-standard-4t", topology)


@pytest.mark.parametrize("machine", ["ct5lp-hightpu-4t", "ct6e-standard-4t"])
def test_2x8_which_only_ray_lists_is_refused(machine):
    assert "is no topology of" in refusal(machine, "2x8")


@pytest.mark.parametrize(
    ("machine", "topology", "reason", "use"),
    [
        ("tpu7x-standard-1t", "1x1x1", "Ray takes every tpu7x host to have 4", "2x2x1"),
        ("ct5p-hightpu-1t", "1x1x1", "Ray takes every v5p host to have 4", "ct5p-hightpu-4t"),
        ("ct5p-hightpu-2t", "1x2x1", "Ray takes every v5p host to have 4", "ct5p-hightpu-4t"),
        ("ct5l-hightpu-1t", "1x1", "Ray has no such generation", "ct5lp-hightpu-1t"),
        ("ct5l-hightpu-4t", "2x2", "Ray has no such generation", "ct5lp-hightpu-4t"),
        ("ct5l-hightpu-8t", "2x4", "Ray has no such generation", "ct5lp-hightpu-8t"),
        ("ct4l-hightpu-4t", "2x2", "Ray has no such generation", "ct4p-hightpu-4t"),
        ("tpu7-standard-1t", "1x1x1", "Ray has no such generation", "tpu7x-standard-4t"),
        ("tpu7-standard-4t", "2x2x1", "Ray has no such generation", "tpu7x-standard-4t"),
    ],
)
def test_a_machine_type_that_ray_cannot_use_is_refused_with_the_reason(
    machine, topology, reason, use
):
    message = refusal(machine, topology)
    assert message.startswith("raytpu:slices[0].machine_type: ")
    assert reason in message
    assert use in message.rpartition(";")[2]


@pytest.mark.parametrize(
    ("machine", "way_out"),
    [
        ("ct6e-standart-4t", "did you mean ct6e-standard-4t?"),
        ("ct5pl-hightpu-8t", "did you mean ct5lp-hightpu-8t?"),
        ("tpu7x-standart-4t", "did you mean tpu7x-standard-4t?"),
        ("v6e", "use one of ct6e-standard-1t, ct6e-standard-4t, ct6e-standard-8t"),
        ("tpu-v5-lite-podslice", "use one of ct5lp-hightpu-1t, ct5lp-hightpu-4t, ct5lp-hightpu-8t"),
        ("TPU-V7X", "use one of tpu7x-standard-4t"),
        ("n2-standard-4", "use one of ct4p-hightpu-4t, "),
    ],
)
def test_an_unknown_machine_type_is_refused_with_those_it_may_mean(machine, way_out):
    assert way_out in refusal(machine, "4x4")


def test_both_a_wrong_machine_type_and_a_wrong_topology_are_told():
    lines = refusal("ct6e-standart-4t", "4 by 4").splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "raytpu:slices[0].machine_type",
        "raytpu:slices[0].topology",
    ]


def outcome(machine, topology):
    spec = SliceSpec(name="s", machine_type=machine, topology=topology)
    try:
        return TpuSlice.resolve(spec)
    except ConfigError as error:
        return error


_MACHINES = st.sampled_from(list(MACHINES))
_SIZES = st.integers(0, 20).map(str) | st.text("0123456789x. ", max_size=3)


@given(_MACHINES | st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_a_slice_or_refused_in_lines_with_a_way_out(machine, topology):
    result = outcome(machine, topology)
    if isinstance(result, ConfigError):
        lines = str(result).splitlines()
        assert len(lines) == len(result.problems)
        assert all("; " in line and line.isprintable() for line in lines)


@given(_MACHINES, st.lists(_SIZES, max_size=4).map("x".join))
def test_what_looks_like_a_topology_is_taken_as_written_or_refused_once(machine, topology):
    result = outcome(machine, topology)
    if isinstance(result, ConfigError):
        assert len(result.problems) == 1
    else:
        assert result.topology == topology.strip()
