"""GKE's versions are ordered as GKE orders them, and each declared feature needs its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from pydantic_core import PydanticCustomError

from infra.gke.version import GkeVersion, reaches, requirements
from infra.tpu.slice import SliceSpec, TpuSlice

_NUMBER = st.integers(0, 9_999_999)
_VERSIONS = st.builds(GkeVersion, st.just(1), st.integers(1, 99), st.integers(0, 99), _NUMBER)


def slice_of(machine, topology, **more):
    spec = {"name": "any", "machine_type": machine, "topology": topology, **more}
    return TpuSlice.resolve(SliceSpec.model_validate(spec))


def needed(*slices, **how):
    return {one.feature: str(one.version) for one in requirements(slices, **how)}


@given(_VERSIONS, _VERSIONS)
def test_versions_are_ordered_as_packages_order_them(one, other):
    def comparable(version):
        return Version(f"{version.major}.{version.minor}.{version.patch}.{version.build}")

    assert (one < other) is (comparable(one) < comparable(other))


@given(_VERSIONS)
def test_a_version_is_read_as_it_is_written(version):
    assert GkeVersion.parse(str(version)) == version


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.35.3-gke.1737000", (1, 35, 3, 1737000)),
        ("1.35.3", (1, 35, 3, 0)),
        ("1.35", (1, 35, 0, 0)),
    ],
)
def test_a_version_may_leave_out_its_end(text, expected):
    assert GkeVersion.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["1", "1.35.3-gke", "1.35.3-eks.1", "1.35-gke.1", "latest", " 1.35"]
)
def test_another_text_is_no_version(text):
    with pytest.raises(PydanticCustomError, match="is no version of GKE"):
        GkeVersion.parse(text)


@given(_VERSIONS, _VERSIONS)
def test_a_whole_version_reaches_what_is_not_newer(given_version, least):
    text = (
        f"{given_version.major}.{given_version.minor}.{given_version.patch}"
        f"-gke.{given_version.build}"
    )
    assert reaches(text, least) is (given_version >= least)


@given(_VERSIONS)
def test_of_a_part_that_is_left_out_the_newest_is_meant(least):
    assert reaches(f"1.{least.minor}", least)
    assert reaches(f"1.{least.minor}.{least.patch}", least)
    assert not reaches(f"1.{least.minor - 1}", least)
    assert reaches(f"1.{least.minor + 1}", least)


# By hand, from GKE's own pages.
OPERATOR = ("clusters with the Ray operator add-on", "1.30.0-gke.1747000")
CLASS = ("compute classes of TPUs", "1.31.2-gke.1518000")


@pytest.mark.parametrize(
    ("machine", "topology", "feature", "version"),
    [
        ("ct6e-standard-4t", "4x4", "v6e slices", "1.31.2-gke.1115000"),
        ("tpu7x-standard-4t", "2x2x2", "tpu7x slices", "1.34.0-gke.2201000"),
    ],
)
def test_a_generation_needs_a_version(machine, topology, feature, version):
    assert needed(slice_of(machine, topology)) == {**dict([OPERATOR]), feature: version}


@pytest.mark.parametrize(
    ("machine", "topology"),
    [("ct4p-hightpu-4t", "2x2x2"), ("ct5lp-hightpu-8t", "2x4"), ("ct5p-hightpu-4t", "2x2x4")],
)
def test_an_older_generation_needs_what_the_ray_operator_needs(machine, topology):
    assert needed(slice_of(machine, topology)) == dict([OPERATOR])


def test_a_compute_class_needs_a_version_for_each_thing_it_says():
    found = needed(slice_of("ct6e-standard-4t", "4x4", provision="compute_class"))
    assert found == {
        **dict([OPERATOR, CLASS]),
        "v6e slices": "1.31.2-gke.1115000",
        "compute classes beside other node selectors": "1.32.3-gke.1499000",
        "zones in a compute class": "1.33.1-gke.1545000",
        "node pools of v6e by a compute class": "1.32.0",
    }


def test_only_several_hosts_of_tpu7x_take_a_placement_policy():
    feature = "placement policies in a compute class"
    by_class = {"provision": "compute_class"}
    assert needed(slice_of("tpu7x-standard-4t", "2x2x2", **by_class))[feature] == (
        "1.33.2-gke.1335000"
    )
    assert feature not in needed(slice_of("tpu7x-standard-4t", "2x2x1", **by_class))
    assert feature not in needed(slice_of("ct6e-standard-4t", "4x4", **by_class))


def test_flex_start_of_a_fallback_counts():
    fallback = {
        "machine_type": "ct5lp-hightpu-4t",
        "topology": "4x4",
        "capacity": [{"flex_start": {}}],
    }
    found = needed(slice_of("ct5p-hightpu-4t", "2x2x4", fallback=[fallback]))
    assert found["TPUs by flex-start"] == "1.33.0-gke.1712000"


def test_on_autopilot_tpu7x_needs_more():
    tpu = slice_of("tpu7x-standard-4t", "2x2x2")
    assert needed(tpu, autopilot=True)["tpu7x slices on Autopilot"] == "1.34.1-gke.3084001"
    assert "tpu7x slices on Autopilot" not in needed(tpu)


def test_each_requirement_is_said_once_with_its_source():
    tpu = slice_of("ct6e-standard-4t", "4x4", provision="compute_class")
    found = requirements([tpu, tpu])
    assert len(found) == len({*found})
    assert all(one.source for one in found)
