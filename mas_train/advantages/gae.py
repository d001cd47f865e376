"""Advantages per token: generalised advantage estimation with a critic, and whitening."""

from __future__ import annotations

from typing import Any

import numpy as np

from mas_envs.errors import UserError
from mas_train.advantages.columns import (
    checked_labels,
    checked_lengths,
    checked_mask,
    checked_rewards,
    checked_tokens,
)
from mas_train.advantages.compose import EPS
from mas_train.advantages.groups import Floats, codes, moments


def gae(
    rewards: Any,
    values: Any,
    lengths: Any,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    known: Any = None,
) -> tuple[Floats, Floats]:
    """Advantages [K] and returns [K] of the K response tokens of N rows (preset `ppo`).

    Row i is a segment of `lengths[i]` tokens which lie one after the other in `values` [K], the
    critic's V of the state *before* each token. Its reward `rewards[i]` [N] arrives at its last
    token, and nothing follows it: the next turn of the same agent is a segment of its own.

        delta_t = r_t + gamma V_(t+1) - V_t        A_t = delta_t + gamma lam A_(t+1)

    (Schulman et al., arXiv 1506.02438). `gamma` and `lam` in [0, 1] discount per token; both at 1,
    A_t = R - V_t. The returns A + V are what the critic learns. Tokens of rows with `known` [N]
    False have advantage 0 and the critic's own value as return, so that neither learns from them.

    Raises `UserError` for columns that do not fit, for gamma or lam out of range, and for a reward
    or value that is not finite in a known row.
    """
    for name, factor in (("gamma", gamma), ("lam", lam)):
        if not 0 <= factor <= 1:
            raise UserError(f"{name} {factor} must be between 0 and 1")
    reward, seen = checked_rewards(rewards, known)
    segments = checked_lengths(lengths, len(reward))
    critic = checked_tokens("values", values, segments, seen)
    rows = np.flatnonzero(seen & (segments > 0))
    ends = np.cumsum(segments)
    delta = np.zeros_like(critic)
    np.multiply(critic[1:], gamma, out=delta[:-1])
    delta[ends[rows] - 1] = reward[rows]
    delta -= critic
    if not seen.all():
        delta[~np.repeat(seen, segments)] = 0.0
    # All rows at once, from their last tokens backwards; the longest first, so that those which
    # still have a token are always the first ones. A turns delta into itself on the way.
    rows = rows[np.argsort(-segments[rows], kind="stable")]
    at, remaining = ends[rows] - 1, -segments[rows]
    carried = np.zeros(len(rows))
    backs = np.arange(int(segments[rows].max(initial=0)))
    for alive in np.searchsorted(remaining, -backs).tolist():
        at, carried = at[:alive], carried[:alive]
        carried *= gamma * lam
        carried += delta.take(at)
        delta[at] = carried
        at -= 1
    return delta, delta + critic


def whiten(values: Any, lengths: Any, agent: Any, *, known: Any = None) -> Floats:
    """Token advantages [K] by agent: (A - m_k) / (s_k + EPS), as drmas does with rewards.

    The K tokens are those of N rows of `lengths` [N], one row after the other, and m_k and s_k are
    the mean and the population deviation of all tokens in known rows of agent k (`agent` [N] is the
    role; give one label to all rows to whiten a team together). Tokens of an agent without spread,
    and of rows with `known` [N] False, are 0.

    Raises `UserError` for columns that do not fit and a value that is not finite in a known row.
    """
    who = codes(checked_labels("agent", agent, np.size(agent)))
    seen = checked_mask(known, who.shape)
    segments = checked_lengths(lengths, len(who), "agents")
    if seen.shape != who.shape:
        raise UserError(f"known {seen.shape} must have shape [N] like agent {who.shape}")
    result = checked_tokens("values", values, segments, seen)
    chosen = np.flatnonzero(np.repeat(seen, segments))
    group = np.repeat(who, segments)[chosen]
    of_agent = moments(result[chosen], group, int(who.max(initial=0)) + 1)
    white = (result[chosen] - of_agent.mean[group]) / (of_agent.std(ddof=0)[group] + EPS)
    result[:] = 0.0
    result[chosen] = np.where(of_agent.spread[group], white, 0.0)
    return result
