import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.data import split

texts = st.lists(st.text(), min_size=2, unique=True)


@given(texts, st.floats(0.001, 0.999), st.integers(-(2**63), 2**63 - 1))
def test_with_two_documents_or_more_each_side_has_one(documents, fraction, seed):
    keys = [split.key(text, seed) for text in documents]
    limit = split.threshold(fraction, min(keys), max(keys))
    assert any(key < limit for key in keys)
    assert any(key >= limit for key in keys)


def test_one_distinct_document_cannot_be_split():
    with pytest.raises(ValueError, match="the same text"):
        split.threshold(0.1, 5, 5)


def test_the_fraction_is_what_was_asked_for_and_another_seed_splits_otherwise():
    held_out = {
        seed: {i for i in range(20_000) if split.key(str(i), seed) < 0.1 * split.KEYS}
        for seed in (0, 1)
    }
    # Binomial: 2000 expected, standard deviation 42; independent seeds share about 200.
    assert 1800 < len(held_out[0]) < 2200
    assert len(held_out[0] & held_out[1]) < 300


def test_keys_are_the_same_in_every_process_and_version():
    # printf text | b2sum -l 64, modulo 2**62
    assert split.key("text", 0) == 1725828232277137948
