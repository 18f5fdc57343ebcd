"""Values that are read out of YAML: the same as PyYAML itself makes, but for templates."""

import gc

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.cli.review import COULD_NOT, Request, review
from policies.documents import embedded
from policies.view import Unknown

PLAIN = st.one_of(
    st.text(st.characters(codec="ascii", exclude_characters="{"), max_size=12),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.dates(),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_a_value_is_what_pyyaml_makes_of_it(value):
    text = yaml.safe_dump(value)
    found = embedded(text)
    assert found == yaml.safe_load(text)
    assert repr(found) == repr(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        "base: &base {a: 1, b: [x]}\nown: {<<: *base, a: 2}\nother: {<<: [*base, {c: 3}]}",
        "list: &list [1, {two: 0x10}]\nagain: *list",
        "'1': one\n2: two\ntrue: three\n~: four",
        "[08, 0o7, 1_000, 12:30:45, .inf, 1e3, 2001-12-14, on, '1', yes, -, a b]",
        "a: |-\n  1\nb: >\n  x\n  y",
        "!!set {a, b}",
        "!!binary aGVsbG8=",
        "- &a x\n- *a\n- !!str 5\n- !!int '5'",
        "a: 1\na: 2",
    ],
)
def test_what_documents_rarely_hold_is_read_alike(text):
    assert embedded(text) == yaml.safe_load(text)


def test_a_template_in_a_value_is_not_known():
    found = embedded("{a: '{{ .Values.a }}', '{{ b }}': [x]}")
    assert isinstance(found["a"], Unknown)
    assert [isinstance(key, Unknown) for key in found] == [False, True]


def test_the_garbage_collector_runs_again_after_a_review(tmp_path):
    (tmp_path / "a.yaml").write_text("a: [")
    assert review(Request([str(tmp_path)])) == COULD_NOT
    assert gc.isenabled()
