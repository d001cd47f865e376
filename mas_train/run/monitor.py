"""What to watch while a team trains: each agent's reward statistics against the team's.

Normalising an agent's rows with the team's mean and deviation multiplies its expected squared
gradient norm by the inflation factor of Lemma 4.2 (arXiv 2602.08847)

    E|g_k|^2 = E|z|^2 * (sigma_k^2 + (mu_k - mu)^2) / sigma^2 + Cov(|z|^2, (R - mu)^2 / sigma^2)

where z is the score of a row, mu_k and sigma_k are over Y_k (the agent's rows), mu and sigma over
the prompt's trajectories, all deviations of the population. With agent-wise normalisation the
factor is 1. A factor far from 1 is an agent that would learn too fast or not at all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mas_envs.errors import UserError
from mas_train.advantages.groups import codes, cross, moments

MAX_REWARD = 1e30
"""Larger rewards overflow float32, in which losses are computed, or their own variance."""


def check_rewards(rewards: Any, agent: Any, known: Any) -> None:
    """Raises `UserError` for a known row whose reward is larger than `MAX_REWARD`, or NaN."""
    values = np.asarray(rewards, np.float64)
    for i in np.flatnonzero(np.asarray(known, np.bool_) & ~(np.abs(values) <= MAX_REWARD))[:1]:
        raise UserError(
            f"a turn of {np.asarray(agent)[i]} earned {values[i]:.3g}, which nothing can be "
            f"learned from (at most {MAX_REWARD:g}); look at the environment's reward and at "
            "agents.*.invalid_penalty"
        )


class AgentStatistics(NamedTuple):
    """One agent in one batch. Means over prompts weigh each prompt by the agent's rows in it.

    `mu` mean reward of the agent's rows; `sigma` root of the mean within-prompt variance;
    `inflation` mean inflation factor over the prompts whose trajectories differ in reward, None
    when there is none; `row_share` the agent's share of all rows; `active_share` the share of
    trajectories in which it acts; `zero_advantage_share` the share of its rows with advantage 0.
    """

    rows: int
    mu: float
    sigma: float
    inflation: float | None
    row_share: float
    active_share: float
    zero_advantage_share: float


def agent_statistics(
    rewards: Any,
    prompt: Any,
    agent: Any,
    trajectory: Any,
    advantages: Any,
    known: Any = None,
) -> dict[str, AgentStatistics]:
    """Statistics by agent over the known rows; all arrays [N], as `advantages` takes them."""
    seen = np.ones(len(rewards), np.bool_) if known is None else np.asarray(known, np.bool_)
    values = np.asarray(rewards, np.float64)[seen]
    names, agents = np.unique(np.asarray(agent)[seen], return_inverse=True)
    prompts = codes(np.asarray(prompt)[seen])
    rollouts = cross(prompts, codes(np.asarray(trajectory)[seen]))
    zero = np.asarray(advantages)[seen] == 0
    if values.size == 0:
        return {}

    team = moments(*_trajectory_rewards(values, prompts, rollouts), int(prompts.max()) + 1)
    pairs = cross(prompts, agents)
    size = int(pairs.max()) + 1
    own = moments(values, pairs, size)
    prompt_of, agent_of = np.empty(size, np.int64), np.empty(size, np.int64)
    prompt_of[pairs], agent_of[pairs] = prompts, agents

    variance = own.squares / own.members
    team_variance = (team.squares / team.members)[prompt_of]
    spread = team.spread[prompt_of]
    shifted = variance + (own.mean - team.mean[prompt_of]) ** 2
    factor = np.divide(shifted, team_variance, out=np.zeros(size), where=spread)

    result = {}
    for k, name in enumerate(names):
        of_k, rows = agent_of == k, agents == k
        weight, defined = own.members * of_k, own.members * (of_k & spread)
        result[str(name)] = AgentStatistics(
            rows=int(rows.sum()),
            mu=float(values[rows].mean()),
            sigma=float(np.sqrt((weight * variance).sum() / weight.sum())),
            inflation=float((defined * factor).sum() / defined.sum()) if defined.any() else None,
            row_share=float(rows.mean()),
            active_share=len(np.unique(rollouts[rows])) / (int(rollouts.max()) + 1),
            zero_advantage_share=float(zero[rows].mean()),
        )
    return result


def _trajectory_rewards(values: Any, prompts: Any, rollouts: Any) -> tuple[Any, Any]:
    """Mean reward and prompt of every trajectory."""
    means = moments(values, rollouts, int(rollouts.max()) + 1).mean
    prompt_of = np.empty(len(means), np.int64)
    prompt_of[rollouts] = prompts
    return means, prompt_of
