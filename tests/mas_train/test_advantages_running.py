"""Preset rae: a running mean per agent, in a dict that the caller keeps."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_train.advantages import advantages
from tests.mas_train.advantage_cases import as_arrays, batches


def rae(rewards, agent, means, **options):
    n = len(rewards)
    return advantages(rewards, range(n), agent, range(n), preset="rae", state=means, **options)


def test_scored_against_the_mean_before_the_batch_which_then_moves():
    means = {"a": 0.5}
    assert rae([1.0], ["a"], means).tolist() == [0.5]  # one episode per prompt is enough
    assert means == {"a": pytest.approx(0.95 * 0.5 + 0.05 * 1.0)}
    before = means["a"]
    assert rae([0.0, 1.0], ["a", "a"], means) == pytest.approx([-before, 1 - before])


def test_a_first_batch_is_scored_against_the_others_and_starts_the_mean():
    means: dict[str, float] = {}
    assert rae([1.0, 0.0, 0.0, 0.7], ["a", "a", "a", "b"], means) == pytest.approx(
        [1.0, -0.5, -0.5, 0.0]
    )
    assert means == {"a": pytest.approx(1 / 3), "b": 0.7}


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 40),
    reward=st.sampled_from([0.0, 1.0, 0.9]),
    start=st.sampled_from([0.0, 0.3, -2.0]),
    decay=st.sampled_from([0.0, 0.5, 0.95]),
)
def test_equal_rewards_move_the_mean_as_far_as_one_update_for_each(count, reward, start, decay):
    means, expected = {"a": start}, Fraction(start)
    for _ in range(count):
        expected = Fraction(decay) * expected + (1 - Fraction(decay)) * Fraction(reward)
    rae([reward] * count, ["a"] * count, means, decay=decay)
    assert means["a"] == pytest.approx(float(expected), rel=1e-12, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(batch=batches(), decay=st.sampled_from([0.0, 0.5, 0.95]))
def test_the_mean_moves_towards_the_known_rewards_of_the_agent(batch, decay):
    means = dict(batch.means)
    batch.credit("rae", state=means, decay=decay)
    for role in {*batch.means, *batch.agent}:
        mine = [
            Fraction(reward)
            for reward, who, known in zip(batch.rewards, batch.agent, batch.known, strict=True)
            if who == role and known
        ]
        if not mine:
            assert means.get(role) == batch.means.get(role)
            continue
        middle, start = sum(mine) / len(mine), batch.means.get(role)
        left = Fraction(decay) ** len(mine) if start is not None else 0
        expected = left * Fraction(start or 0) + (1 - left) * middle
        assert means[role] == pytest.approx(float(expected), rel=1e-12, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(batch=batches())
def test_the_means_can_be_saved_and_read_back(batch):
    batch = as_arrays(batch, np.float32)
    means = dict(batch.means)
    batch.credit("rae", state=means)
    saved = json.loads(json.dumps(means))
    assert saved == means
    assert {type(one) for one in [*means, *means.values()]} <= {str, float}
    assert (batch.credit("rae", state=saved) == batch.credit("rae", state=means)).all()
    assert saved == means


def test_equal_rewards_keep_the_mean_exactly():
    means: dict[str, float] = {}
    for _ in range(5):
        assert (rae(np.full(7, 0.9), ["a"] * 7, means) == 0).all()
        assert means == {"a": 0.9}


def test_counted_by_trajectory_a_long_one_moves_the_mean_once():
    means = {"a": 0.0}
    rewards, trajectory = [1.0, 0.5, 0.0], ["A", "A", "B"]
    options = {"preset": "rae", "unit": "trajectory", "decay": 0.5, "state": means}
    result = advantages(rewards, [0] * 3, ["a"] * 3, trajectory, **options)
    assert result == pytest.approx([0.75, 0.75, 0.0])
    assert means["a"] == pytest.approx((1 - 0.25) * 0.375)


def test_the_running_mean_can_be_divided_by_a_deviation():
    args = ([1.0, 0.0], ["a", "a"], {"a": 0.25})
    assert rae(*args, std="population") == pytest.approx([1.5, -0.5], rel=1e-5)
    white = rae([1.0, 0.0], ["a", "a"], {"a": 0.25}, std="tokens", lengths=[1, 3])
    assert white == pytest.approx([0.75 / np.sqrt(3 / 16), -0.25 / np.sqrt(3 / 16)], rel=1e-5)


def test_a_batch_that_is_refused_moves_nothing():
    means = {"a": 0.5}
    with pytest.raises(ValueError, match="row 1"):
        rae([1.0, np.nan], ["a", "a"], means)
    assert means == {"a": 0.5}
