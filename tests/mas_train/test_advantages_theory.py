"""What the papers prove: Lemma 4.2 of Dr. MAS, unbiased leave-one-out, by exact sums."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_train.advantages import EPS, advantages, counterfactual

REWARD = [1.0, 0.25, -0.5]
LOGITS = np.array([0.3, -0.2, 0.8])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(6, 60), width=st.integers(1, 5))
def test_lemma_4_2(seed, rows, width):
    """E|g_k|² = E|z|² (sigma_k² + (mu_k - mu)²) / sigma² + Cov(|z|², (R - mu)² / sigma²).

    g = z A for the rows of agent k, with population deviations and mu, sigma of all agents' rows;
    with agent-wise statistics the factor is 1 and mu, sigma are the agent's.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, width)) * rng.gamma(1, size=(rows, 1))
    agent = np.array(["a", "b", "c"])[np.arange(rows) % 3]
    rewards = rng.normal(size=rows) + (agent == "a") * 3 + (agent == "b") * rng.normal(size=rows)
    squares = (z**2).sum(axis=1)
    columns = (rewards, np.zeros(rows, int), agent, np.arange(rows))
    team = advantages(*columns, preset="step_global", std="population")
    own = advantages(*columns, preset="drmas", std="population")
    mu, sigma = rewards.mean(), rewards.std()
    for k in "abc":
        mine, r = squares[agent == k], rewards[agent == k]
        for credit, centre, scale in ((team, mu, sigma), (own, r.mean(), r.std())):
            inside = (r - centre) ** 2 / (scale + EPS) ** 2
            factor = (r.var() + (r.mean() - centre) ** 2) / (scale + EPS) ** 2
            covariance = (mine * inside).mean() - mine.mean() * inside.mean()
            energy = ((z * credit[:, None])[agent == k] ** 2).sum(axis=1).mean()
            rounding = 1e-11 * mine.max() * inside.max()
            assert energy == pytest.approx(mine.mean() * factor + covariance, abs=rounding)
            if credit is own:
                assert 0 <= 1 - factor <= 2 * EPS / scale


def expected_gradient(estimate, draws):
    """Exact mean over all samples of `draws` arms of (1/draws) sum A_i grad log pi(arm_i)."""
    policy = np.exp(LOGITS) / np.exp(LOGITS).sum()
    score = np.eye(3) - policy
    total = np.zeros(3)
    for arms in itertools.product(range(3), repeat=draws):
        credit = estimate([REWARD[arm] for arm in arms])
        weight = math.prod(policy[arm] for arm in arms)
        total += weight * sum(a * score[arm] for a, arm in zip(credit, arms, strict=True)) / draws
    return total


def true_gradient():
    policy = np.exp(LOGITS) / np.exp(LOGITS).sum()
    return policy * (np.array(REWARD) - policy @ REWARD)


def of_one_prompt(**options):
    def estimate(rewards):
        n = len(rewards)
        return advantages(rewards, [0] * n, ["a"] * n, range(n), **options)

    return estimate


UNBIASED = {
    "rloo": of_one_prompt(preset="rloo"),
    "counterfactual": lambda rewards: counterfactual(rewards, [7] * len(rewards)),
    "rae, first batch": lambda rewards: of_one_prompt(preset="rae", state={})(rewards),
    "rae": lambda rewards: of_one_prompt(preset="rae", state={"a": 0.37})(rewards),
}


@pytest.mark.parametrize("name", UNBIASED)
@pytest.mark.parametrize("draws", [2, 3, 4])
def test_a_baseline_without_the_row_itself_leaves_the_gradient_unbiased(name, draws):
    assert expected_gradient(UNBIASED[name], draws) == pytest.approx(true_gradient(), abs=1e-14)


@pytest.mark.parametrize("draws", [2, 3, 4])
def test_the_mean_of_the_whole_group_shrinks_the_gradient(draws):
    """By (n-1)/n: what tells the two baselines apart, and that the enumeration sees it."""
    shrunk = expected_gradient(of_one_prompt(preset="dr_grpo"), draws)
    assert shrunk == pytest.approx((draws - 1) / draws * true_gradient(), abs=1e-14)


def test_alternatives_of_two_decisions_do_not_mix():
    result = counterfactual([1, 0, 0, 5, 5, 9], ["x", "x", "x", "y", "y", "z"])
    assert result.tolist() == [1.0, -0.5, -0.5, 0.0, 0.0, 0.0]
    unknown = counterfactual([1, 0, np.nan], ["x"] * 3, known=[True, True, False])
    assert unknown.tolist() == [1.0, -1.0, 0.0]
