"""The running mean of each agent's rewards: a baseline that needs no group."""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mas_envs.errors import UserError
from mas_train.advantages.groups import Codes, Floats, Moments


def checked_state(state: Any) -> MutableMapping[Any, float]:
    """The running means. Raises `UserError` where they are no dict of finite numbers."""
    if not isinstance(state, MutableMapping):
        raise UserError(f"state must be a dict role → running mean, not {type(state).__name__}")
    for role, mean in state.items():
        if not isinstance(mean, int | float) or not math.isfinite(mean):
            raise UserError(f"the running mean of {role!r} in state is {mean!r}, not a number")
    return state


def names_of(labels: NDArray[Any], group: Codes) -> list[Any]:
    """The label of each code, as a plain Python value: what a checkpoint can hold."""
    first = np.empty(int(group.max()) + 1, np.int64)
    first[group] = np.arange(len(group))
    names: list[Any] = labels[first].tolist()
    return names


def minus_running(
    values: Floats,
    batch: Moments,
    group: Codes,
    roles: Sequence[Any],
    state: MutableMapping[Any, float],
    decay: float,
) -> Floats:
    """`values` [N] minus the running mean of their agent; moves the means in `state`.

    `group` [N] says the agent of each row, below K; `batch` the K agents' statistics in this batch;
    `roles` their K names. An agent without a running mean is scored against its other members.
    """
    before = np.array([state.get(role, math.nan) for role in roles], np.float64)
    fresh, count = np.isnan(before), batch.members
    others = np.where(count > 1, count / np.maximum(count - 1, 1), 0.0)
    baseline, factor = np.where(fresh, batch.mean, before), np.where(fresh, others, 1.0)
    scored = (values - baseline[group]) * factor[group]
    after = np.where(fresh, batch.mean, before + (1 - decay**count) * (batch.mean - before))
    for role, mean, members in zip(roles, after.tolist(), count.tolist(), strict=True):
        if members:
            state[role] = mean
    return scored
