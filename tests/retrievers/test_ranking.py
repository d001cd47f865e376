"""The order of results against a plain sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.ranking import best

NEAR = st.integers(-30, 30).map(lambda step: step * 0.000017)  # many ties after rounding
SCORES = st.lists(st.one_of(NEAR, st.floats(-200, 200, width=32), NEAR.map(lambda s: s + 90)))


@given(SCORES, st.integers(0, 40), st.randoms(), st.sampled_from([np.float32, np.float64]))
@pytest.mark.parametrize("decimals", [4, None])
def test_equals_a_plain_sort(decimals, scores, k, random, dtype):
    scores = np.array(scores, dtype=dtype)
    rank = list(range(len(scores)))
    random.shuffle(rank)

    def key(i):
        score = float(scores[i])
        return (-(score if decimals is None else np.round(score, decimals)), rank[i])

    got = best(scores, np.array(rank, dtype=np.uint32), k, decimals=decimals)
    assert got.tolist() == sorted(range(len(scores)), key=key)[:k]


def test_ties_at_the_edge_of_k_go_by_rank():
    scores = np.array([1.00001, 1.00004, 0.99996, 2.0], dtype=np.float32)
    rank = np.array([1, 2, 0, 3])
    assert best(scores, rank, 2).tolist() == [3, 2]
    assert best(scores, rank, 2, decimals=None).tolist() == [3, 1]
