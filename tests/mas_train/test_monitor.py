"""Lemma 4.2 of arXiv 2602.08847 as an exact identity, and the monitor's other figures."""

from __future__ import annotations

import numpy as np
import pytest

from mas_train.advantages import advantages
from mas_train.run.monitor import agent_statistics


def team(rng, trajectories=24):
    """One prompt: a solver in every trajectory, a retry in some (bad) ones."""
    returns = rng.random(trajectories)
    rows = [("solver", t) for t in range(trajectories)]
    rows += [("retry", t) for t in range(trajectories) if returns[t] < 0.25]
    agent = np.array([name for name, _ in rows])
    trajectory = np.array([t for _, t in rows])
    return returns[trajectory], np.zeros(len(rows), int), agent, trajectory


@pytest.mark.parametrize("seed", range(5))
def test_lemma_4_2_is_an_identity(seed):
    rng = np.random.default_rng(seed)
    columns = team(rng)
    rewards, _, agent, _ = columns
    # scores whose norm depends on the reward, so that the covariance term matters
    z = rng.normal(size=(len(rewards), 6)) * (0.5 + rewards)[:, None]
    z_squared = (z**2).sum(1)
    options = {"unit": "turn", "group": "prompt+agent", "mean": "global"}
    a = advantages(*columns, std="global_population", **options)
    watched = agent_statistics(*columns, a)
    returns = rewards[agent == "solver"]  # the solver acts once in every trajectory
    mu, sigma = returns.mean(), returns.std()
    for name in ("solver", "retry"):
        rows = agent == name
        squared_norm = ((a[rows, None] * z[rows]) ** 2).sum(1).mean()
        standard = ((rewards[rows] - mu) / sigma) ** 2
        delta = (z_squared[rows] * standard).mean() - z_squared[rows].mean() * standard.mean()
        predicted = z_squared[rows].mean() * watched[name].inflation + delta
        assert abs(delta) > 1e-3
        assert squared_norm == pytest.approx(predicted, rel=1e-4)  # EPS in the denominator
        # and to rounding, with the same normaliser that has no EPS
        exact = (z_squared[rows] * standard).mean()
        assert exact == pytest.approx(predicted, rel=1e-12)
    assert watched["solver"].inflation == pytest.approx(1, rel=1e-12)
    assert watched["retry"].inflation > 1.1


def test_agent_wise_normalisation_has_factor_one():
    columns = team(np.random.default_rng(1))
    agent = columns[2]
    a = advantages(*columns, std="population")
    for name in ("solver", "retry"):
        assert (a[agent == name] ** 2).mean() == pytest.approx(1, rel=1e-4)


def test_prompts_weigh_by_the_agents_rows():
    rewards = [1, 0, 1, 0, 0, 1, 1, 1]
    prompt = [0, 0, 0, 1, 1, 1, 1, 1]
    agent = ["s", "s", "v", "s", "s", "s", "v", "v"]
    trajectory = [0, 1, 0, 2, 3, 4, 4, 4]
    watched = agent_statistics(rewards, prompt, agent, trajectory, np.ones(8))
    solver, verifier = watched["s"], watched["v"]
    assert (solver.rows, verifier.rows) == (5, 3)
    assert solver.mu == pytest.approx(2 / 5)
    assert solver.sigma == pytest.approx(np.sqrt((2 * 0.25 + 3 * 2 / 9) / 5))
    # verifier: prompt 0: (1 - .5)²/.25 = 1 (one row); prompt 1: (1 - 1/3)²/(2/9) = 2 (two rows)
    assert verifier.inflation == pytest.approx((1 * 1 + 2 * 2) / 3)
    assert verifier.active_share == pytest.approx(2 / 5)
    assert verifier.row_share == pytest.approx(3 / 8)


def test_unknown_rows_and_flat_prompts():
    rewards = [1.0, 1.0, np.nan, 1.0]
    watched = agent_statistics(
        rewards, [0] * 4, ["s", "s", "s", "v"], [0, 1, 2, 0], np.zeros(4), [1, 1, 0, 1]
    )
    assert watched["s"].rows == 2
    assert watched["s"].inflation is None
    assert watched["s"].zero_advantage_share == 1.0
    assert watched["v"].active_share == 0.5
    assert agent_statistics([np.nan], [0], ["s"], [0], [0.0], [False]) == {}
