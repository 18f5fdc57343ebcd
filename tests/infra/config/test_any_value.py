"""Whatever stands in a stack file, the answer is a stack or lines that a user can read."""

from hypothesis import given
from hypothesis import strategies as st

from infra.config.cluster import GoogleCluster
from tests.infra.config.stack import GKE, SOUND, changed, faults, on_gke

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_PATHS = st.sampled_from(
    [
        *SOUND,
        "slices__0",
        "slices__1__topology",
        "workloads__0",
        "workloads__1",
        "workloads__1__mesh",
        "workloads__1__data",
        "workloads__1__model",
        "workloads__2__name",
        "workloads__2__kind",
        "workloads__2__api_key",
        "workloads__0__sources",
    ]
)


_GKE_PATHS = st.sampled_from(
    [
        *GKE,
        *(f"cluster__{key}" for key in GoogleCluster.model_fields),
        "cluster__mode",
        "cluster__zones__0",
        "cluster__cpu_pool",
        "team__members",
        "images__vllm",
        "slices__0__capacity",
        "slices__0__fallback",
        "slices__0__provision",
        "workloads__1__deadline",
        "workloads__2__model",
        "workloads__2__redis",
        "hugging_face_token",
    ]
)


@given(_GKE_PATHS, _JSON)
def test_any_value_anywhere_on_gke_gives_a_stack_or_printable_lines(path, value):
    for line in faults(on_gke(**{path: value})):
        assert line.startswith("raytpu:")
        assert line.isprintable()
        assert "; " in line


@given(_PATHS, _JSON)
def test_any_value_anywhere_gives_a_stack_or_printable_lines(path, value):
    for line in faults(changed(**{path: value})):
        assert line.startswith("raytpu:")
        assert line.isprintable()
        assert "; " in line
