"""Advantages per token: gae and whitening, against loops in exact fractions."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_train.advantages import EPS, gae, whiten


@st.composite
def token_rows(draw):
    """Rewards [N], values [K], lengths [N], known [N]; some rows are empty, some unknown."""
    n = draw(st.integers(0, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = rng.integers(0, 8, n)
    rewards, known = rng.choice([0.0, 1.0, 0.9, -0.1], n), rng.random(n) < 0.8
    return rewards, rng.normal(size=lengths.sum()), lengths, known


def gae_by_sums(rewards, values, lengths, known, gamma, lam):
    """A_t as the sum over k of (gamma lam)^k delta_(t+k), term by term."""
    result, start = [], 0
    for reward, length, is_known in zip(rewards, lengths, known, strict=True):
        v = [Fraction(value) for value in values[start : start + length]] + [Fraction(0)]
        r = [Fraction(0)] * (length - 1) + [Fraction(reward)]
        delta = [r[t] + Fraction(gamma) * v[t + 1] - v[t] for t in range(length)]
        step = Fraction(gamma) * Fraction(lam)
        result += [
            float(sum(step ** (s - t) * delta[s] for s in range(t, length))) if is_known else 0.0
            for t in range(length)
        ]
        start += length
    return result


@settings(max_examples=80, deadline=None)
@given(
    rows=token_rows(),
    gamma=st.sampled_from([1.0, 0.99, 0.5, 0.0]),
    lam=st.sampled_from([1.0, 0.95, 0.0]),
)
def test_gae_is_the_discounted_sum_of_its_deltas(rows, gamma, lam):
    rewards, values, lengths, known = rows
    result, returns = gae(rewards, values, lengths, gamma=gamma, lam=lam, known=known)
    assert result == pytest.approx(gae_by_sums(*rows, gamma, lam), abs=1e-12)
    assert returns == pytest.approx(result + values, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(rows=token_rows(), gamma=st.sampled_from([1.0, 0.9]))
def test_at_lambda_1_the_return_is_the_discounted_reward_and_the_critic_cancels(rows, gamma):
    rewards, values, lengths, _ = rows
    result, returns = gae(rewards, values, lengths, gamma=gamma, lam=1.0)
    left = np.concatenate([np.arange(length)[::-1] for length in lengths] or [np.zeros(0)])
    expected = np.repeat(rewards, lengths) * gamma**left
    assert returns == pytest.approx(expected, abs=1e-12)
    assert result == pytest.approx(expected - values, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(rows=token_rows(), data=st.data())
def test_a_row_of_tokens_depends_on_itself_only(rows, data):
    rewards, values, lengths, known = rows
    order = np.array(data.draw(st.permutations(range(len(lengths)))), int)
    ends = np.cumsum(lengths)
    tokens = [np.arange(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    moved = np.concatenate([tokens[row] for row in order] or [np.zeros(0, int)])
    before = gae(rewards, values, lengths, gamma=0.9, lam=0.8, known=known)
    after = gae(
        rewards[order], values[moved], lengths[order], gamma=0.9, lam=0.8, known=known[order]
    )
    assert (after[0] == before[0][moved]).all() and (after[1] == before[1][moved]).all()


def test_unknown_rows_teach_neither_policy_nor_critic():
    values = np.array([0.5, 0.25, np.nan, 0.75])
    result, returns = gae([np.nan, np.nan, 1.0], values, [2, 1, 1], known=[False, False, True])
    assert result.tolist() == [0.0, 0.0, 0.0, 0.25]
    assert returns[:2].tolist() == [0.5, 0.25] and returns[3] == 1.0


def test_one_long_row_among_short_ones():
    lengths = np.array([1, 5000, 3])
    values = np.zeros(5004)
    result, _ = gae([1.0, 1.0, 1.0], values, lengths, gamma=1.0, lam=0.999)
    assert result[1:5001] == pytest.approx(0.999 ** np.arange(5000)[::-1], rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(rows=token_rows(), seed=st.integers(0, 99))
def test_whitening_by_agent(rows, seed):
    _, values, lengths, known = rows
    agent = np.random.default_rng(seed).choice(["solver", "verifier"], len(lengths))
    owner, taken = np.repeat(agent, lengths), np.repeat(known, lengths)
    by_agent = defaultdict(list)
    for value, who, is_known in zip(values, owner, taken, strict=True):
        if is_known:
            by_agent[who].append(Fraction(value))
    expected = []
    for value, who, is_known in zip(values, owner, taken, strict=True):
        mine = by_agent[who]
        if not is_known or min(mine) == max(mine):
            expected.append(0.0)
            continue
        centre = sum(mine) / len(mine)
        scale = math.sqrt(sum((one - centre) ** 2 for one in mine) / len(mine))
        expected.append(float(Fraction(value) - centre) / (scale + EPS))
    assert whiten(values, lengths, agent, known=known) == pytest.approx(expected, abs=1e-9)


def test_equal_token_advantages_are_exactly_nothing():
    assert (whiten([0.9] * 7, [3, 4], ["a", "a"]) == 0).all()
    assert (whiten([0.9, 0.4], [1, 1], ["a", "b"]) == 0).all()
    assert (whiten([0.1 + 0.2, 0.3], [2], ["a"]) == 0).all()  # they differ by rounding
    assert whiten([], [], []).shape == (0,)
    assert gae([], [], [])[0].shape == (0,)
