"""Aggregations as per-token weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.errors import UnknownName, UserError
from mas_train.learner.weights import AGGREGATIONS, token_weights


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(-5, 5), max_size=6), min_size=1, max_size=12).filter(any),
)
def test_weighted_sums_are_the_named_means(rows):
    live = [row for row in rows if row]
    expected = {
        "token_mean": np.mean(np.concatenate(live)),
        "seq_mean_token_mean": np.mean([np.mean(row) for row in live]),
        "seq_mean_token_sum": np.mean([np.sum(row) for row in live]),
        "constant": np.mean([np.sum(row) for row in live]) / 50,
    }
    for aggregation in AGGREGATIONS:
        weights = token_weights([len(row) for row in rows], aggregation, max_tokens=50)
        total = sum(w * sum(row) for w, row in zip(weights, rows, strict=True))
        assert total == pytest.approx(expected[aggregation], rel=1e-9, abs=1e-12)


def test_a_row_weight_leaves_the_others_alone():
    plain = token_weights([3, 5])
    assert token_weights([3, 5], row_weights=[0.5, 1]).tolist() == [plain[0] / 2, plain[1]]


def test_nothing_to_weigh():
    for aggregation in AGGREGATIONS:
        assert np.isfinite(token_weights([0, 0], aggregation, max_tokens=5)).all()
        assert token_weights([], aggregation, max_tokens=5).shape == (0,)


def test_errors():
    with pytest.raises(UnknownName, match="'token_mean'"):
        token_weights([1], "token-mean")
    with pytest.raises(UserError, match="max_tokens"):
        token_weights([1], "constant")
