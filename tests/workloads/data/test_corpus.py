import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.data import corpus
from workloads.errors import UserError

counts = st.lists(st.integers(0, 1000), min_size=2, max_size=20).filter(any)


@given(counts, st.data())
def test_cross_entropy_is_the_mean_of_what_each_token_costs(held_out, data):
    size = len(held_out)
    train = data.draw(st.lists(st.integers(0, 1000), min_size=size, max_size=size))
    tokens = [token for token, count in enumerate(held_out) for _ in range(count)]
    total = sum(train) + size
    by_hand = math.fsum(-math.log((train[token] + 1) / total) for token in tokens) / len(tokens)
    assert corpus.cross_entropy(np.array(held_out), np.array(train)) == pytest.approx(by_hand)


def test_entropy_of_a_fair_coin_is_ln_2_and_of_one_token_nothing():
    assert corpus.entropy(np.array([5, 5, 0])) == pytest.approx(math.log(2))
    assert corpus.entropy(np.array([0, 9])) == pytest.approx(0)


@given(counts, st.data())
def test_no_distribution_beats_the_tokens_own(held_out, data):
    size = len(held_out)
    train = data.draw(st.lists(st.integers(0, 1000), min_size=size, max_size=size))
    best = corpus.entropy(np.array(held_out))
    assert corpus.cross_entropy(np.array(held_out), np.array(train)) >= best - 1e-9


def test_a_folder_without_a_manifest_is_no_corpus(tmp_path):
    with pytest.raises(UserError, match=r"corpus.json: no such file.*run the data job into"):
        corpus.load(str(tmp_path))


def test_a_damaged_manifest_is_refused(tmp_path):
    (tmp_path / "corpus.json").write_text('{"digest": 3}')
    with pytest.raises(UserError, match="not a manifest of this version"):
        corpus.load(str(tmp_path))
